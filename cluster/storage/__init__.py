"""Storage of a campaign on disk: results, artefacts, corpora."""

"""What a campaign leaves on the disk: results, artefacts, corpora."""

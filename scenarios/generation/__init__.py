"""Generation of traces: the base generator, situations with their weights, and changes for an engine."""

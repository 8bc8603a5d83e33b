"""Lines of an engine that order its work: each is left out in turn, and what finds that is told in a table."""

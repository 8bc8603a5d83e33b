"""Reversals of merged fixes of an engine: small edits of its installed sources, and trials of how soon each is found."""

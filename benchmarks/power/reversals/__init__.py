"""Reversals of merged fixes: small edits of an engine's installed sources, and trials of how soon each is found."""

"""Reversals of merged fixes: small edits of an engine, and trials of how soon each is found."""

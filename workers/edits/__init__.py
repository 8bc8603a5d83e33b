"""Edits of an engine's Python sources: fixes of known bugs, and reversals of merged fixes."""

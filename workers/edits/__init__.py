"""Edits of an engine's Python sources: fixes of known bugs, reverted upstream fixes, diffs."""

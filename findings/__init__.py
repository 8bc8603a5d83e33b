"""Findings in released engines: the fix of each, as edits of the engine's source."""

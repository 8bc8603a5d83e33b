"""Reversals of vLLM: small edits of its installed sources, each undoing a merged fix."""

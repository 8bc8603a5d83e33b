"""Reversals of SGLang: small edits of its installed sources, each undoing a merged fix."""

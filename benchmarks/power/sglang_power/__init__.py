"""Reversals of SGLang: small edits of its installed sources, each the reverse of a merged fix."""

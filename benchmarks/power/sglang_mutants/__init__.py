"""Mutants of SGLang: each line that orders work left out in turn."""

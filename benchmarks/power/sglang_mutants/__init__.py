"""Mutants of SGLang: each line that orders work is left out in turn."""

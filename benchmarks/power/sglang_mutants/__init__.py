"""Mutants of SGLang: each source line that orders work between streams is left out."""

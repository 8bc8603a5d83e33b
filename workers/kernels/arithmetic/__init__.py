"""Arithmetic of the integer model, for arrays and for Triton blocks."""

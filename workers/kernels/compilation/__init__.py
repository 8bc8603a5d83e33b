"""Compilation of kernels ahead of their first launch."""

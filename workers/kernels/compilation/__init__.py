"""Compilation of Triton kernels before their first launch."""

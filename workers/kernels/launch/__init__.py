"""Launching of Triton kernels: checks, bound launches, overlap."""

"""Conformance of vLLM's Triton kernels to the definitions of our device ops."""

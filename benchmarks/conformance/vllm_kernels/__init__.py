"""Compare vLLM's Triton kernels with the definitions of our device ops."""

"""Definitions of vLLM's Triton kernels, a file for each of its modules; each keeps the digest of the kernel it was held
against (`make vllm-kernels`)."""

"""Definitions of vLLM's Triton kernels, a file for each of its modules; `make vllm-kernels` holds them to these."""

"""NumPy definitions that run in place of vLLM's Triton kernels, one file per vLLM module.

`make vllm-kernels` compares the kernels with these.
"""

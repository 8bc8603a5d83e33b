"""NumPy definitions of vLLM's Triton kernels, one file per module of vLLM.

`make vllm-kernels` compares the kernels with these.
"""

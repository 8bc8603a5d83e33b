"""NumPy definitions that replace SGLang's Triton kernels on the simulated device."""

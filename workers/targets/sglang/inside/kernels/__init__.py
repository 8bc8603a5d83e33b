"""Definitions of SGLang's Triton kernels, which run in their place on the simulated device."""

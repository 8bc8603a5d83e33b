"""How Triton kernels are launched, bound and checked."""

"""Tests of the Triton kernels: on the GPU where there is one, else under Triton's interpreter."""

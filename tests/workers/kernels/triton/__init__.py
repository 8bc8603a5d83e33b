"""Tests of the Triton kernels, on a GPU if there is one, otherwise under the interpreter."""

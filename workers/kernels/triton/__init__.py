"""The device ops as Triton kernels: of each definition in NumPy, a twin of the same name and signature."""

"""The device op `residual_mass`: reference and fast kernels."""

"""The device op `rejection_sample`: reference and fast kernels."""

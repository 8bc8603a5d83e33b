"""The device op `count_sampled`: reference and fast kernels."""

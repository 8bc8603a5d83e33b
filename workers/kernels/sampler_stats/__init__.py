"""The device op `sampler_stats`: reference and fast kernels."""

"""Device ops that copy between host and device: reference and fast kernels."""

"""The device op `prepare_inputs`: reference and fast kernels."""

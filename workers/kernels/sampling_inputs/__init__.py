"""The device op `sampling_inputs`: reference and fast kernels."""

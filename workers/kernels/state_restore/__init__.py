"""The device op `state_restore`: reference and fast kernels."""

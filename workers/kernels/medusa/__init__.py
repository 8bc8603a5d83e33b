"""The device op `medusa_heads`: reference and fast kernels."""

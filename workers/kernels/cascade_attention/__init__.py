"""The device op `cascade_attention`: reference and fast kernels."""

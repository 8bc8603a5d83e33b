"""The device op `attention`: reference and fast kernels."""

"""The device op `logit_floors`: reference and fast kernels."""

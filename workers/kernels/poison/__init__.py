"""The device ops `poison` and `poison_states`: reference and fast kernels."""

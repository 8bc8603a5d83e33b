"""The device op `recurrent_update`: reference and fast kernels."""

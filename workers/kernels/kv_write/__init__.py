"""The device op `kv_write`: reference and fast kernels."""

"""The device op `state_copy`: reference and fast kernels."""

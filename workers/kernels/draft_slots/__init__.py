"""The device op `draft_slots`: reference and fast kernels."""

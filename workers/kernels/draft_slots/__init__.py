"""Device op `draft_slots`: reference implementation and fast kernels."""

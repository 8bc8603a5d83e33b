"""The device op `compute_logits`: reference and fast kernels."""

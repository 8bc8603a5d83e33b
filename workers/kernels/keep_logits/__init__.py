"""The device op `keep_logits`: reference and fast kernels."""

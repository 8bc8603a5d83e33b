"""The device op `spoil_logits`: reference and fast kernels."""

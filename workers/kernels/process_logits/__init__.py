"""The device ops `write_history` and `process_logits`: reference and fast kernels."""

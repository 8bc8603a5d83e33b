"""The device ops `grammar_drafts` and `apply_masks`: reference and fast kernels."""

"""The device ops `draft_first_pass` and `draft_chain`: reference and fast kernels."""

"""The device ops `draft_model_pass` and `draft_model_chain`: reference and fast kernels."""

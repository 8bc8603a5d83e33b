"""The device ops `draft_noise` and `drawn_chain`: reference and fast kernels."""

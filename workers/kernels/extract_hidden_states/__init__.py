"""The device op `extract_hidden_states`: reference and fast kernels."""

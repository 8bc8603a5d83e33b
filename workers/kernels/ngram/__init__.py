"""The device ops `write_tokens` and `ngram_search`: reference and fast kernels."""

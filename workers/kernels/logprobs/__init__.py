"""The device ops `token_logprobs` and `flatten_logprobs`: reference and fast kernels."""

"""The device ops `token_logprobs` and `flatten_logprobs`: arguments, definition and twins."""

"""The device ops `token_logprobs` and `flatten_logprobs`: definition and twins."""

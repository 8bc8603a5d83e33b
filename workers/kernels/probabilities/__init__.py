"""Weights (unnormalised probabilities) of tokens, in blocks and tiles of the vocabulary."""

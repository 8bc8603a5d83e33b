"""Weights (unnormalised probabilities) of tokens, over blocks and tiles of the vocabulary."""

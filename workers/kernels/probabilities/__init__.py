"""Weights of tokens over blocks and tiles of the vocabulary."""

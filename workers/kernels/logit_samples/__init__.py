"""Samples of a line of logits."""

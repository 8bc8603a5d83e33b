"""Samples of a row of logits."""

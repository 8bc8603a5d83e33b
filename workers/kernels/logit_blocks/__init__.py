"""Blocks of a line of logits."""

"""Blocks of a row of logits."""

"""Searches for the floor of a line of logits."""

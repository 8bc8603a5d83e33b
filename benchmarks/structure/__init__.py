"""Measure the source structure of a checkout."""

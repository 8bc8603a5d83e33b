"""Measure the structure of a checkout."""

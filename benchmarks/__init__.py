"""Measurements: medians and ratios against a named reference in the same run."""

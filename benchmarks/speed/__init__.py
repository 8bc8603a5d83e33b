"""Measure speed: medians, and ratios to a named reference in the same run."""

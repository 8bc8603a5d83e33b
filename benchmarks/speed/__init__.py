"""Measure speed: medians, and ratios to a named reference measured in the same run."""

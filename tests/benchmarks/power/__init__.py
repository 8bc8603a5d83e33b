"""Tests of `benchmarks/power/`."""

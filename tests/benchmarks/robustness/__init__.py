"""Tests of `benchmarks/robustness/`."""

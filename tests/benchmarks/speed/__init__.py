"""Tests of `benchmarks/speed/`."""

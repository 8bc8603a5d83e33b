"""Tests of `benchmarks/structure/`."""

"""Tests of `benchmarks/conformance/`."""

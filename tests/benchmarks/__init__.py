"""Tests of the benchmarks: what they compare gives equal values."""

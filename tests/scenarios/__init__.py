"""Tests of traces: random numbers, YAML codec, generators, strategies."""

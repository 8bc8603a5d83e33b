"""Tests of `generate/`."""

"""Tests of what every value must be."""

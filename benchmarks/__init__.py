"""Measurements, and checks that are too slow for tests; one folder per measured property."""

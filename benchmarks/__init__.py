"""Measurements, and checks too long for tests, by what they measure."""

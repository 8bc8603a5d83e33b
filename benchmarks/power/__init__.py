"""Measure which faults, mutants and rare situations traces and judges find."""

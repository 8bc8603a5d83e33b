"""Measure which faults, mutants and rare situations the traces and judges find."""

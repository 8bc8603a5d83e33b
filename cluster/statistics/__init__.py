"""Estimates over many trials: survival, fault tables, figures."""

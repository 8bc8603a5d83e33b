"""Contracts: rules for an output that follow from its request alone, for any engine."""

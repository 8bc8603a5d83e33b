"""Trace generation: base generator, situations with weights, and adaptation to an engine."""

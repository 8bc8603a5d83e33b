"""Judges: check an engine's run with oracle, reference scheduler, races, outputs."""

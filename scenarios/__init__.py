"""Traces: engine specifications, events and schedules, with YAML codec and generators."""

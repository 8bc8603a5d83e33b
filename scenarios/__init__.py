"""Traces: engine specifications, events and schedules, with their YAML codec and their generators."""

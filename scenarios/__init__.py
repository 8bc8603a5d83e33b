"""Traces: engine specifications, events, schedules, their YAML form and their generators."""

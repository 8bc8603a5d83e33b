"""Traces (engine specification, events, schedule): YAML codec and random generators."""

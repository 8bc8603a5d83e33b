"""What is asked: engine specifications, events, schedules and their YAML form."""

"""A target in a process of its own: seen from the process that judges, and inside the process itself."""

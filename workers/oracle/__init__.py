"""Oracle: what every value must be, from the trace and the log alone."""

"""Oracle: the expected value of every engine variable, from the trace and the log alone."""

"""Oracle: the expected value of each engine variable, from trace and scheduler log alone."""

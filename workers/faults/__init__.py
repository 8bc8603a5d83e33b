"""Historical bugs that can be switched on, one file per family."""

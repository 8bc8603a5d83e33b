"""Historical bugs, re-created behind a switch: one file a family."""

"""Structure of a checkout in numbers."""

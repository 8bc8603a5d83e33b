"""What runs next, and what its answers come to."""

"""Helper functions for exported tests; a test contains the ones that it calls."""

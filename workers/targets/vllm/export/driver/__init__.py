"""Driver of vLLM's exported tests: a test file copies the functions that it needs."""

"""Driver of exported vLLM tests: a test file copies the functions it calls."""

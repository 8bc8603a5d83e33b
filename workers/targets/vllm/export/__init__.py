"""Export of a vLLM finding: a test file that needs only vLLM and pytest, and an issue."""

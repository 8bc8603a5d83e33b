"""vLLM target: runs unmodified vLLM in a child process."""

"""vLLM target: runs the unmodified engine in a child process."""

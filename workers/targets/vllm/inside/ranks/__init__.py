"""Several ranks of vLLM in one process: its own executor, workers and groups, with threads in place of processes."""

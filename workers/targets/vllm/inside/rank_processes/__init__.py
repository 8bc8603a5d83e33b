"""Several ranks of vLLM as its own worker processes: delays in these processes, and their failures."""

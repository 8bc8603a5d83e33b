"""Target vLLM: the real engine, unmodified, in a process of its own."""

"""The engine's own process: run by vLLM's Python, the only place where torch and vLLM are imported."""

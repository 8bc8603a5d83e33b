"""Mutants of vLLM's asynchronous runner: orders of it left out, and mistakes planted in it, one at a time."""

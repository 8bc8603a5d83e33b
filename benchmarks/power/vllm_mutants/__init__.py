"""Mutants of vLLM's asynchronous runners: order lines left out, or mistakes planted."""

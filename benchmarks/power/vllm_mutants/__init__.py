"""Mutants of vLLM's async model runners: order lines left out, or mistakes planted."""

"""Mutants of vLLM's async model runners: without a line that orders accesses, or with a mistake."""

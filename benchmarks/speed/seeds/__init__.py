"""Measure the vLLM changes that the project grew from: equal values, old and new cost."""

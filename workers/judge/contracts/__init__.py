"""Contracts: what a request may demand of its output, judged from the two alone, whatever engine gave it."""

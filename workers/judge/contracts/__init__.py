"""Contracts between a request and its output, judged from the two alone, for any engine."""

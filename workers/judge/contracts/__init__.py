"""Contracts: rules that a request's output must obey on any engine (masks, stops, logprobs)."""

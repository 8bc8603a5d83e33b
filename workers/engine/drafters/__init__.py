"""Drafters: each enqueues the ops that propose the draft tokens of a step."""

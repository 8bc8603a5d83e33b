"""Drafters: each enqueues what proposes the drafts of a step."""

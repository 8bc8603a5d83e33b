"""The engine under test: paged KV cache, async scheduling, speculative decoding."""

"""Code shared by drafters: sums over a KV cache, scratch writes, scripted draft tokens."""

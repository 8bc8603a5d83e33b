"""A KV connector of our own: a bounded store beside vLLM's cache, in memory, whose copies are tasks of the device."""

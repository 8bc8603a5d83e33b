"""The engine under test: continuous batching, paged caches, recurrent layers, asynchronous speculative decoding."""

"""Driver of exported tests of vLLM: a file takes over what its trace needs."""

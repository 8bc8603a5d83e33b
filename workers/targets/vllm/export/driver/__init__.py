"""Driver of exported tests: a file takes over what its trace needs."""

"""Several ranks of SGLang in one process: each rank is a whole scheduler, in a host thread of its own."""

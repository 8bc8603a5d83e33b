"""Target SGLang: the unmodified engine, in a child process."""

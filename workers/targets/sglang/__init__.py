"""Target SGLang: the real engine, in a process of its own."""

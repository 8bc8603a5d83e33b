"""Export of findings of SGLang as tests that need it and pytest alone."""

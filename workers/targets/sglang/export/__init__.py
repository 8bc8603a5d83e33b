"""Export of SGLang findings as tests that need only SGLang and pytest."""

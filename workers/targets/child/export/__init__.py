"""Export of findings as tests of an engine: Python text, and the parts of a driver that a test needs."""

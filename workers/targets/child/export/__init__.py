"""Export of findings as test files of an engine: Python text, and source of the test driver."""

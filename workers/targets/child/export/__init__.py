"""Export of findings as test files of an engine: Python text, and helpers of the tests."""

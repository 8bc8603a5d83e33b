"""Test commands, workers and stores with hostile input, killed processes, damaged files."""

"""Robustness: commands, workers and stores under hostile input, kills and damage."""

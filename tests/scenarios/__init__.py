"""Tests of what is asked: draws, traces, their YAML form and their strategies."""

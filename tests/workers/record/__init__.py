"""Tests of evidence, verdicts and words."""

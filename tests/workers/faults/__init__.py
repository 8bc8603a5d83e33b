"""Tests of historical bugs."""

"""Tests of estimates over many trials."""

"""Tests of statistics over many trials."""

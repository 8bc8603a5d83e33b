"""Tests of edits of engines' sources."""

"""Tests of what runs next."""

"""Tests of `findings/`."""

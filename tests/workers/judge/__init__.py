"""Tests of what is compared with what."""

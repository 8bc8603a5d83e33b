"""Tests of what a campaign leaves on the disk."""

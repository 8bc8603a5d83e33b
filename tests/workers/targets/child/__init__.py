"""Tests of targets in a process of their own, with a process that does as it is told."""

"""Tests of targets in child processes, with tiny engines that behave as each test needs."""

"""Engines that a run can drive, and what they run on."""

"""Planted faults: historical bugs that a run can switch on, one file per family."""

"""Shrinking: simplify a failing trace while it still shows the same bug."""

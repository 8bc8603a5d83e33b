"""Shrinking: make a failing trace small, and recognise whether it still shows the same bug."""

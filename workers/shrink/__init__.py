"""Shrinking: make a failing trace small, and tell the same bug from another one."""

"""Engines in a child process, driven by messages; the package `inside` runs in the child.

The child process runs the engine's scheduler, model runner and drafter, and answers questions about them.
"""

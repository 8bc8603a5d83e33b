"""Engines in a child process: the judging process's side, and `inside` the child.

The child process runs the engine's scheduler, model runner and drafter, and answers questions about them.
"""

"""Engines in a child process: driven by messages; `inside` is the code of the child.

The child process runs the engine's scheduler, model runner and drafter, and answers questions about them.
"""

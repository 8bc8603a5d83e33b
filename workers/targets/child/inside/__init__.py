"""Code that runs in the child process, alongside the engine's scheduler and model runner.

The engine's own Python interpreter runs it.
"""

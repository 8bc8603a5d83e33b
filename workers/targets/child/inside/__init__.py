"""Code that runs in the engine's process, together with its scheduler and model runner.

The engine's own Python interpreter runs it.
"""

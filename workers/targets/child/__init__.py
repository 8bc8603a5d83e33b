"""Engines that run in a child process: driven from the judging process, hosted in `inside`.

The child process runs the engine's scheduler, model runner and drafter, and answers questions about them.
"""

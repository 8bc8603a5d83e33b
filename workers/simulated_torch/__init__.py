"""Simulated PyTorch device: each op is a task that a schedule may delay; races are detected."""

"""Simulated PyTorch device: its ops are tasks that a schedule runs, checked for races."""

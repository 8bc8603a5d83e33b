"""Tests of the simulated PyTorch device, by plain PyTorch programs."""

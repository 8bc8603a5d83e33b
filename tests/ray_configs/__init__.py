"""Tests of `ray_configs/` and the image: against the validators of those who read them, and against the project."""

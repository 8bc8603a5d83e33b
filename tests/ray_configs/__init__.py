"""Tests of `ray_configs/` and the image, by the validators of the programs that read them."""

"""The device op `draw_noise`: reference and fast kernels."""

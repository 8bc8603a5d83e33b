"""The device op `draw_noise`: arguments, definition and twins."""

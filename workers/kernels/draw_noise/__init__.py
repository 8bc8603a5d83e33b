"""The device op `draw_noise`: definition and twins."""

"""The device op `count_sampled`: arguments, definition and twins."""

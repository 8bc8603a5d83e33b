"""The device op `count_sampled`: definition and twins."""

"""The device op `sampler_stats`: definition and twins."""

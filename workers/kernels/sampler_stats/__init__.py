"""The device op `sampler_stats`: arguments, definition and twins."""

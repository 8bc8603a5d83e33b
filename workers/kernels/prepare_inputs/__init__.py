"""The device op `prepare_inputs`: definition and twins."""

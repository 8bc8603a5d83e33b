"""The device op `sampling_inputs`: definition and twins."""

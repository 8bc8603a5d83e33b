"""The device op `sampling_inputs`: arguments, definition and twins."""

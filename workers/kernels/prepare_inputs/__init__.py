"""The device op `prepare_inputs`: arguments, definition and twins."""

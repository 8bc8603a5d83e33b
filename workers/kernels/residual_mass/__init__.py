"""The device op `residual_mass`: arguments, definition and twins."""

"""The device op `state_restore`: arguments, definition and twins."""

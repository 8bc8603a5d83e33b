"""The device ops `poison` and `poison_states`: arguments, definition and twins."""

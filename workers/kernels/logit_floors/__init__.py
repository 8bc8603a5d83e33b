"""The device op `logit_floors`: arguments, definition and twins."""

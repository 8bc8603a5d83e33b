"""The device op `recurrent_update`: arguments, definition and twins."""

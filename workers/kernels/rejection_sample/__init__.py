"""The device op `rejection_sample`: arguments, definition and twins."""

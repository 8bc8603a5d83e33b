"""The device op `draft_slots`: arguments, definition and twins."""

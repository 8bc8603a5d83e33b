"""The device op `draft_slots`: definition and twins."""

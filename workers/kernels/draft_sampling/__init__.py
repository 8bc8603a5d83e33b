"""The device ops `draft_noise` and `drawn_chain`: arguments, definition and twins."""

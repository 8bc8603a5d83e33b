"""The device ops `draft_model_pass` and `draft_model_chain`: arguments, definition and twins."""

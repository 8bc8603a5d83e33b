"""The device op `extract_hidden_states`: arguments, definition and twins."""

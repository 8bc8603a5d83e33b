"""The device op `extract_hidden_states`: definition and twins."""

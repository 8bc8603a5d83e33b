"""The device op `compute_logits`: arguments, definition and twins."""

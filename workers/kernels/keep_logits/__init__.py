"""The device op `keep_logits`: arguments, definition and twins."""

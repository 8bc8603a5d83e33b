"""The device op `spoil_logits`: arguments, definition and twins."""

"""The device ops `write_history` and `process_logits`: arguments, definition and twins."""

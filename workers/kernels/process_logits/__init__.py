"""The device ops `write_history` and `process_logits`: definition and twins."""

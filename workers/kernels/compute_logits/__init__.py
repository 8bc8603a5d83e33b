"""The device op `compute_logits`: definition and twins."""

"""The device op `keep_logits`: definition and twins."""

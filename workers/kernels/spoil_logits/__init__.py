"""The device op `spoil_logits`: definition and twins."""

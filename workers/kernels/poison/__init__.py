"""The device ops `poison` and `poison_states`: definition and twins."""

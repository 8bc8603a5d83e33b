"""The device op `state_restore`: definition and twins."""

"""The device op `logit_floors`: definition and twins."""

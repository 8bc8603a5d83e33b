"""The device op `residual_mass`: definition and twins."""

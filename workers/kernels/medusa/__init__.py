"""The device op `medusa_heads`: definition and twins."""

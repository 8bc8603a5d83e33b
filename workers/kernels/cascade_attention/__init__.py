"""The device op `cascade_attention`: definition and twins."""

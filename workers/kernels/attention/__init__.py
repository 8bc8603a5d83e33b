"""The device op `attention`: definition and twins."""

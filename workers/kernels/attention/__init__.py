"""The device op `attention`: arguments, definition and twins."""

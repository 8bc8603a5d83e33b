"""The device op `cascade_attention`: arguments, definition and twins."""

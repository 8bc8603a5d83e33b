"""The device op `medusa_heads`: arguments, definition and twins."""

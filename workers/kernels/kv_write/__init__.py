"""The device op `kv_write`: arguments, definition and twins."""

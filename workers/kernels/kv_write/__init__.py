"""The device op `kv_write`: definition and twins."""

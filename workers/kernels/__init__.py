"""The device ops: one definition in NumPy each."""

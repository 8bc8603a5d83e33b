"""The device ops: a folder each, with their arguments, definition and twins."""

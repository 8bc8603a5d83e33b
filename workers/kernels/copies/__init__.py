"""The device ops that copy between the host and the device: arguments, definition and twins."""

"""The device ops that copy between the host and the device: definition and twins."""

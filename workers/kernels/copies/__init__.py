"""Device ops that copy between host and device: definition and twins."""

"""Device ops, one folder each: arguments, plain definition, NumPy and Triton twins."""

"""Device ops, one folder each: arguments, plain reference ("definition"), NumPy, Triton."""

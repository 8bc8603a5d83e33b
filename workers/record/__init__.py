"""What engine and judges both may see: the log, observations, verdicts, and the exact scalar world."""

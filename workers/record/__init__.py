"""Record: what engine and judges both may see, namely log, observations, verdicts and the exact scalar world."""

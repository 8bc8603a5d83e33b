"""Values that engines and judges share: decision log, observations, verdicts, evidence."""

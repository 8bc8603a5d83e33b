"""Values shared by engine and judges: log, observations, verdicts, exact integer arithmetic."""

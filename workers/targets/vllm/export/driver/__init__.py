"""Driver of an exported test: functions that its file takes over, each only if its trace needs it."""

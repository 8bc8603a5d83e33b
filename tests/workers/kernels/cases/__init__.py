"""Cases of device ops: arguments for which an op's twins must equal its definition."""

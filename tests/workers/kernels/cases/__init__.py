"""Cases of device ops: arguments on which an op's twins must do what its definition does."""

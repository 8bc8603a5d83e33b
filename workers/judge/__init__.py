"""What is compared with what: checker, referee, race detector."""

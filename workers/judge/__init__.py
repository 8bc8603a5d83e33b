"""Judges: checker, referee, properties, race detector, output comparison."""

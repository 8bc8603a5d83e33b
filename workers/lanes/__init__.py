"""Lanes: asynchrony as a value, by the order in which lanes and events advance."""

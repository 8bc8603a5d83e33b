"""Asynchrony as a value: lanes, events and the order in which they advance."""

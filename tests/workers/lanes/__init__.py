"""Tests of lanes, events and the order in which lanes advance."""

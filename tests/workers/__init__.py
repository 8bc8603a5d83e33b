"""Tests of the room that runs and judges one trace."""

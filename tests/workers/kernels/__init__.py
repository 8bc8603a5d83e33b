"""Tests of the device ops: each is compared row by row with a slow definition."""

"""Tests of the device ops: each against a slow definition, row by row, from the words of its docstring."""

"""Tests of the engines a run can drive."""

"""Tests of the engines that a run can drive."""

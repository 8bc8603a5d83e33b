"""Tests of the engine under test."""

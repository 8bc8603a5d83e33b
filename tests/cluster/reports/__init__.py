"""Tests of reports for people and programs."""

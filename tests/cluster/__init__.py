"""Tests of where traces run and what becomes of the verdicts."""

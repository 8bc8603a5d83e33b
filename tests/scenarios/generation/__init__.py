"""Tests of the generation of traces."""

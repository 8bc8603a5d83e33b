"""Tests of campaigns as jobs of a real Ray cluster with its job server."""

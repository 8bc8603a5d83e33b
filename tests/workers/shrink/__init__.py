"""Tests of the shrinker and of fingerprints."""

"""Tests of campaign directories: database, artefacts, archives, locks, merges."""

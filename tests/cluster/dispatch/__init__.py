"""Tests of jobs, coordinator and pools."""

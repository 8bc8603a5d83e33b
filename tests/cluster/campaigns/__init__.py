"""Tests of campaigns: planners, driver, budget, triage."""

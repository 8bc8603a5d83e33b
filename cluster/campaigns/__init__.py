"""Campaigns: planners that choose the next jobs, and the driver that runs them."""

"""Campaigns: planners of what runs next, and the driver that carries them out."""

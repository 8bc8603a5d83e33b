"""Reports of campaigns for people and programs."""

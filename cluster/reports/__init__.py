"""What people and programs read of a campaign."""

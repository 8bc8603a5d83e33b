"""Hunt: a campaign of generated traces; shards, canary, repeated shards and findings."""

"""Hunt: a campaign of generated traces, in shards; canary, repeated shards, findings."""

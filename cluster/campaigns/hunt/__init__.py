"""Hunt: a campaign of generated traces, split by what is decided: which shards run, the canary, repeats, findings."""

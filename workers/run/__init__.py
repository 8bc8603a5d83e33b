"""One trace, a sweep of schedules, a shard of generated traces, a trial of a fault."""

"""Run one trace, a sweep of schedules, a shard of generated traces, or a trial of a fault."""

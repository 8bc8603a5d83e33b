"""Tests of runs: one trace, a sweep, a shard, a trial."""

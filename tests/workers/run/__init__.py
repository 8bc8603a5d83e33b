"""Tests of one trace, a sweep, a shard, a trial."""

"""Tests of package `cluster`: campaigns, commands, dispatch, reports, statistics, storage."""

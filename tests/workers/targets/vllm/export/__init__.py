"""Tests of `workers.targets.vllm.export`."""

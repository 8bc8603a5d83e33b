"""Tests of the target vLLM; those that need its installation run with `make test-vllm`."""

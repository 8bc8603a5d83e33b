"""Tests of the vLLM target; with an installation of vLLM, `make test-vllm` runs all of them."""

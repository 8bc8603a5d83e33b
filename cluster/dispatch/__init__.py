"""Dispatch of jobs: coordinator, worker pools, and the process that hosts a worker."""

"""Dispatch: jobs, the coordinator, worker pools, and the process that hosts a worker."""

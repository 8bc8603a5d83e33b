"""Where a job runs: jobs, the coordinator, pools and the process that hosts a worker."""

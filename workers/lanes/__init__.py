"""Lanes (device queues such as CUDA streams), events, and the order in which ops run."""

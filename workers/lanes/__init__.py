"""Lanes (device queues such as CUDA streams), events, and policies that order their ops."""

"""Shards of random traces, shared among processes: for benchmarks that ask what random traces reach."""

import multiprocessing
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from scenarios.generation.shards import TRACES_PER_SHARD

T = TypeVar("T")


def shards_each(traces: int, processes: int) -> int:
    """Return how many shards each process takes, so that all of them have no fewer traces than asked for."""
    return -(-traces // TRACES_PER_SHARD // processes)


def over_shards(run: Callable[[int, int], T], shards: int, processes: int) -> Iterator[T]:
    """Yield what a function of a number of shards, and of the first one's number, returns in each process."""
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(partial(run, shards), range(0, shards * processes, shards))

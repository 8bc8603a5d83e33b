"""Shards of random traces for benchmarks, split among processes."""

import multiprocessing
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from scenarios.generation.shards import TRACES_PER_SHARD

T = TypeVar("T")


def shards_each(traces: int, processes: int) -> int:
    """Return the shards for each process, so that together they have at least `traces` traces."""
    return -(-traces // TRACES_PER_SHARD // processes)


def over_shards(run: Callable[[int, int], T], shards: int, processes: int) -> Iterator[T]:
    """Call `run(shards, first)` in each process, and yield the results."""
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(partial(run, shards), range(0, shards * processes, shards))

"""Soak runs: their generated traces, and runs in several processes."""

from collections import Counter
from itertools import islice

from benchmarks.conformance.soak import TRACES_OF_A_PROCESS, Soak, generated, soak, soak_in_processes
from scenarios.generation.shards import TRACES_PER_SHARD
from scenarios.generation.strategies import random_trace
from workers.targets.target import DEFAULT_CONFIG


def test_generated_alternates_generators_and_starts_anywhere() -> None:
    drawn = list(islice(generated(0), 3 * TRACES_PER_SHARD))
    assert [seed for seed, _, _ in drawn] == list(range(3 * TRACES_PER_SHARD))
    assert Counter(profile for _, profile, _ in drawn) == {
        "labelled": 2 * TRACES_PER_SHARD,
        "hypothesis": TRACES_PER_SHARD,
    }
    assert next(generated(3)) == drawn[3] == (3, "labelled", random_trace(3))
    assert next(generated(TRACES_PER_SHARD + 5)) == drawn[TRACES_PER_SHARD + 5]


def test_soak_in_processes_adds_up_separate_soaks() -> None:
    first, second = (soak(index * TRACES_OF_A_PROCESS, 150) for index in range(2))
    assert first[1] is None
    assert second[1] is None
    assert first[0] != second[0]
    both = Soak()
    both.add(first[0])
    both.add(second[0])
    assert soak_in_processes(0, 300, DEFAULT_CONFIG, 2) == (both, None, "")

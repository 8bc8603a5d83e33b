"""Traces generated for each engine, once per process, shared by the tests of situations."""

from functools import cache

from scenarios.generation.base import labelled_trace
from scenarios.generation.catalogue import generated_for
from scenarios.generation.situation import Generated
from scenarios.trace import Trace
from workers.targets.registry import target_kind

NUM_TRACES = 400


@cache
def random_traces() -> tuple[Trace, ...]:
    """Return the random traces of the first thousand seeds."""
    return tuple(labelled_trace(seed).trace for seed in range(1000))


@cache
def generated(engine: str) -> tuple[Generated, ...]:
    """Return an engine's traces of the first NUM_TRACES seeds, with their situations."""
    capabilities = target_kind(engine).capabilities
    return tuple(generated_for(labelled_trace(seed), capabilities) for seed in range(NUM_TRACES))


def engine_traces(engine: str) -> tuple[Trace, ...]:
    """Return an engine's traces of the first NUM_TRACES seeds."""
    return tuple(trace for trace, _ in generated(engine))


def having(engine: str, *names: str) -> list[Trace]:
    """Return an engine's traces with at least one of the situations."""
    return [trace for trace, situations in generated(engine) if {*names} & {*situations}]

"""Traces generated for each engine, made once in a process: tests of their situations look at the same ones."""

from functools import cache

from scenarios.generation.base import labelled
from scenarios.generation.catalogue import generated_for
from scenarios.generation.situation import Generated
from scenarios.trace import Trace
from workers.targets.registry import kind_of

NUM_DRAWN = 400


@cache
def random_traces() -> tuple[Trace, ...]:
    """Return the random traces of the first thousand seeds."""
    return tuple(labelled(seed).trace for seed in range(1000))


@cache
def generated(engine: str) -> tuple[Generated, ...]:
    """Return the traces of the first NUM_DRAWN seeds for an engine, with their situations."""
    capabilities = kind_of(engine).capabilities
    return tuple(generated_for(labelled(seed), capabilities) for seed in range(NUM_DRAWN))


def drawn(engine: str) -> tuple[Trace, ...]:
    """Return the same traces alone."""
    return tuple(trace for trace, _ in generated(engine))


def having(engine: str, *names: str) -> list[Trace]:
    """Return those traces that have one of some situations."""
    return [trace for trace, situations in generated(engine) if {*names} & {*situations}]

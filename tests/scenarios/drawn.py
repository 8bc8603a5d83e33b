"""Traces drawn for each engine, made once in a process: tests of their shares look at the same ones."""

from functools import cache

from scenarios.edges import drawn_for
from scenarios.random_trace import random_trace
from scenarios.trace import Trace
from workers.targets.registry import kind_of

NUM_DRAWN = 400


@cache
def random_traces() -> tuple[Trace, ...]:
    """Return the random traces of the first thousand seeds."""
    return tuple(map(random_trace, range(1000)))


@cache
def drawn(engine: str) -> tuple[Trace, ...]:
    """Return the traces of the first NUM_DRAWN seeds for an engine."""
    capabilities = kind_of(engine).capabilities
    return tuple(drawn_for(trace, capabilities) for trace in random_traces()[:NUM_DRAWN])

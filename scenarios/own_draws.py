"""Draws of an engine's own: what only its random traces have, as its target declares it beside its capabilities."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from scenarios.events import AnyEvent
from scenarios.spec import EngineSpec

# A number below a bound, labelled by the trace's seed, by what it is for, and by an index.
Pick: TypeAlias = Callable[[int, str, int], int]
# A change of a drawn trace: its specification and events with something else in them.
Draws: TypeAlias = Callable[[EngineSpec, Sequence[AnyEvent], Pick], tuple[EngineSpec, list[AnyEvent]]]


def _no_keys(pick: Pick) -> Mapping[str, object]:
    return {}


@dataclass(frozen=True, slots=True)
class OwnDraws:
    """Draws of one engine, `keys` of its specifications; one trace of `undrafted_one_in` is without drafts.

    By a number below ten that each trace has: `sizes` in the place of edges of that number (`scenarios/edges.py`), and
    behind all edges, where the trace stays valid, `meetings` of requests with steps in flight.
    """

    keys: Callable[[Pick], Mapping[str, object]] = _no_keys
    undrafted_one_in: int = 10
    sizes: Mapping[int, Draws] = field(default_factory=dict)
    meetings: Mapping[int, Draws] = field(default_factory=dict)

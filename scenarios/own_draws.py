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
    """Draws of one engine: `keys` of its specifications, and, by a number below ten that a trace has, what is in it.

    `sizes` take the place of the edges of their number (`scenarios/edges.py`); `meetings` of requests with steps in
    flight come behind all edges, where the trace stays valid. One trace of `undrafted_one_in` is without drafts.
    """

    undrafted_one_in: int = 10
    keys: Callable[[Pick], Mapping[str, object]] = _no_keys
    sizes: Mapping[int, Draws] = field(default_factory=dict)
    meetings: Mapping[int, Draws] = field(default_factory=dict)

"""Protocols inside an engine's process: the engines, and the session that runs one trace."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from scenarios.events import AnyEvent
from scenarios.spec import EngineSpec
from workers.targets.child.answers import Delivery
from workers.targets.child.messages import Message


class Session(Protocol):
    """One trace on one engine, step by step.

    An exception ends the trace, and the engine is not used again.
    """

    @property
    def probes(self) -> Mapping[str, int]:
        """How often each situation, such as a preemption or a rejected draft token, has happened."""

    @property
    def memory(self) -> Mapping[str, object]:
        """Objects, by name; the device's reports name their tensors and streams.

        Examples are the model runner, the drafter and the buffers of the batch rows.
        """

    def happen(self, event: AnyEvent) -> None:
        """Apply an event, such as an abort or a prefix-cache reset, between two steps."""

    def step(self) -> Sequence[Delivery]:
        """Run one step; return the output tokens that it delivered."""

    def drained(self) -> bool:
        """Return whether the scheduler has no request left and no step is in flight."""

    def ended(self) -> None:
        """Observe what an idle engine still holds, such as KV-cache blocks.

        Nothing is observed if the engine is not idle or its steps are not watched.
        """

    def seen(self) -> list[Message]:
        """Return the observations since the last call."""

    def close(self) -> None:
        """Return the engine, which may be kept if it has drained."""


class Engines(Protocol):
    """The engines of a process; one of them runs a trace at a time."""

    def open(self, spec: EngineSpec, observed: bool) -> Session:
        """Begin a trace on an idle engine with this specification, created or kept."""

    def forget(self) -> None:
        """Discard all kept engines."""

"""Protocols in an engine's process: `Engines`, and `Session`, one trace on an engine."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from scenarios.events import AnyEvent
from scenarios.spec import EngineSpec
from workers.targets.child.answers import Delivery
from workers.targets.child.messages import Message


class Session(Protocol):
    """One trace on one engine, run step by step.

    An exception ends the trace, and the engine is not used again.
    """

    @property
    def probes(self) -> Mapping[str, int]:
        """Counts of the probes (situations such as a preemption) so far."""

    @property
    def memory(self) -> Mapping[str, object]:
        """Objects that hold the engine's tensors and streams, by the names used in reports.

        Examples are the model runner, the drafter and the buffers of the batch rows.
        """

    def happen(self, event: AnyEvent) -> None:
        """Apply an event of the trace, such as an abort, between two steps."""

    def step(self) -> Sequence[Delivery]:
        """Run one step; return the output tokens that it delivered to clients."""

    def drained(self) -> bool:
        """Return whether the scheduler has no request left and no step is in flight."""

    def ended(self) -> None:
        """Record what the engine still holds after the last request, such as KV-cache blocks.

        Nothing is observed if the engine is not idle or its steps are not watched.
        """

    def seen(self) -> list[Message]:
        """Return the engine records since the last call."""

    def close(self) -> None:
        """Give the engine back: it serves later traces if it has no request left."""


class Engines(Protocol):
    """Engines of a process, one of which at a time runs a trace."""

    def open(self, spec: EngineSpec, observed: bool) -> Session:
        """Begin a trace on an engine with these options: a kept one, or a new one."""

    def forget(self) -> None:
        """Discard the kept engines."""

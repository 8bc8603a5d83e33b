"""Protocols of an engine's process: `Engines`, a pool of engines; `Session`, one trace."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from scenarios.events import AnyEvent
from scenarios.spec import EngineSpec
from workers.targets.child.answers import Delivery
from workers.targets.child.messages import Message


class Session(Protocol):
    """One trace that runs on one engine, step by step.

    An exception ends the trace, and the engine is not used again.
    """

    @property
    def probes(self) -> Mapping[str, int]:
        """Counts of the probes (situations such as a preemption) so far."""

    @property
    def memory(self) -> Mapping[str, object]:
        """Objects whose attributes hold the engine's tensors and streams, by name in reports.

        Examples are the model runner, the drafter and the buffers of the batch rows.
        """

    def happen(self, event: AnyEvent) -> None:
        """Apply an event of the trace, such as an abort, between two steps."""

    def step(self) -> Sequence[Delivery]:
        """Run one step; return the output tokens that it delivered to clients."""

    def drained(self) -> bool:
        """Return whether the scheduler has no request left and no step is in flight."""

    def ended(self) -> None:
        """Record blocks, rows and requests that the engine still holds after the last request.

        Nothing is observed if the engine is not idle or its steps are not watched.
        """

    def seen(self) -> list[Message]:
        """Return the engine records made since the last call, and forget them."""

    def close(self) -> None:
        """Return the engine to the pool if it has no request left."""


class Engines(Protocol):
    """The pool of engines of a process; one engine at a time runs a trace."""

    def open(self, spec: EngineSpec, observed: bool) -> Session:
        """Begin a trace on an engine with this spec: one from the pool, or a new one."""

    def forget(self) -> None:
        """Discard all engines of the pool."""

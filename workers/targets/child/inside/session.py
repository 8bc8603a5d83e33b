"""Protocols in an engine's process: `Engines`, and `Session`, which runs one trace."""

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
        """How often each situation (probe), such as a preemption, has occurred so far."""

    @property
    def memory(self) -> Mapping[str, object]:
        """Objects by name, e.g. the model runner; the device names their tensors and streams.

        Examples are the model runner, the drafter and the buffers of the batch rows.
        """

    def happen(self, event: AnyEvent) -> None:
        """Apply an event of the trace, such as an abort, between two steps."""

    def step(self) -> Sequence[Delivery]:
        """Run one step; return the output tokens that it delivered to clients."""

    def drained(self) -> bool:
        """Return whether the scheduler has no request left and no step is in flight."""

    def ended(self) -> None:
        """Observe what the drained engine still holds, such as KV-cache blocks.

        Nothing is observed if the engine is not idle or its steps are not watched.
        """

    def seen(self) -> list[Message]:
        """Return the observations of steps since the last call."""

    def close(self) -> None:
        """Give the engine back; it is kept for the next trace if it has drained."""


class Engines(Protocol):
    """The engines of a process, of which one at a time runs a trace."""

    def open(self, spec: EngineSpec, observed: bool) -> Session:
        """Begin a trace on an idle engine with these options; create the engine if none is kept."""

    def forget(self) -> None:
        """Discard the kept engines."""

"""Protocols of what runs inside an engine's process: the engines, and one trace on one of them."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from scenarios.events import AnyEvent
from scenarios.spec import EngineSpec
from workers.targets.child.answers import Delivery
from workers.targets.child.messages import Message


class Session(Protocol):
    """One trace on one engine, step by step; what it raises ends the trace, and the engine is not used again."""

    @property
    def probes(self) -> Mapping[str, int]:
        """How often each interesting thing has happened."""

    @property
    def memory(self) -> Mapping[str, object]:
        """Objects whose tensors and streams bear their names in reports of the device, by name."""

    def happen(self, event: AnyEvent) -> None:
        """Let an event happen, between two steps."""

    def step(self) -> Sequence[Delivery]:
        """Do one step; return what it delivered."""

    def drained(self) -> bool:
        """Tell whether nothing is left to do."""

    def ended(self) -> None:
        """Observe what is left, if nothing is to be done any more; nothing if its steps are not observed."""

    def seen(self) -> list[Message]:
        """Return what was observed since the last call, each as `workers.targets.child.answers` has it."""

    def close(self) -> None:
        """Give the engine back, which may be kept if it has drained."""


class Engines(Protocol):
    """The engines of a process, of which one at a time runs a trace."""

    def open(self, spec: EngineSpec, observed: bool) -> Session:
        """Begin a trace on an idle engine as specified, made or kept; with its steps `observed` or not."""

    def forget(self) -> None:
        """Keep no engine."""

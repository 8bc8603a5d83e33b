"""Protocols of what runs inside an engine's process: the engines, one trace on one of them, and the device under it."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from scenarios.events import AnyEvent, Schedule
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


class Device(Protocol):
    """The device of a process, on which traces run under schedules: `simulated_device.SimulatedDevice`."""

    def idle(self) -> None:
        """Let everything run, and watch nothing: an engine is being made."""

    def begin(self, memory: Mapping[str, object], schedule: Schedule, races: bool, digests: bool) -> None:
        """Begin a trace under a schedule, and name the memory of objects."""

    def step(self, tick: int) -> None:
        """Label what is launched from here on."""

    def abandon(self) -> None:
        """Run what an engine that broke off has left; keep the report of before."""

    def report(self) -> Message:
        """Let everything run; return the races of the trace so far, and what the device counted."""

    def race(self, number: int) -> Any:
        """Return a race of the last report."""

    def digests(self) -> Any:
        """Let everything run, and return what each task of the trace read and wrote."""

    def harm(self, race: Any, eager: Any, lazy: Any) -> Message:
        """Say whether a race did harm, from what tasks read and wrote under eager and under lazy."""

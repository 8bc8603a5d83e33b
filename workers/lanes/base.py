"""Base classes of the simulated and the GPU machine: buffers, host access, delayed ops."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from workers.lanes.lane import Buffer, EventRecord, OpArguments, Span, Watcher
from workers.lanes.policies import Policy
from workers.lanes.prepared import Function, PreparedOp, op_of

_PREPARED_MAX = 4096


@dataclass(frozen=True, slots=True)
class HeldOp:
    """An op that a schedule delays until another op has run, or the host has reached a point.

    Both are given by name and step.
    """

    op: tuple[str, int]
    until: tuple[str, int]


class OpFailed(Exception):
    """A device op raised an exception.

    The message names the op and its step, the cause is chained.
    """


class BaseLane:
    """Lane (device queue): its name, index, and ops with already checked arguments."""

    def __init__(self, name: str, index: int) -> None:
        self.name = name
        self.index = index
        self._prepared: dict[OpArguments, PreparedOp] = {}

    def _prepare(self, op: Function, arguments: OpArguments) -> PreparedOp:
        """Check an op's arguments; cache the result under the arguments object.

        A cached op with the same arguments object is replaced.
        """
        if len(self._prepared) > _PREPARED_MAX:
            self._prepared.clear()
        prepared = self._prepared[arguments] = PreparedOp(self.name, op_of(op), arguments)
        return prepared


class BaseEvent:
    """Event with the semantics of CUDA: its name and its newest record."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.record_newest: EventRecord | None = None


class BaseMachine:
    """State of both machines: buffers, scheduling policy, watcher, and delayed ops.

    Every host call goes through `decide` first.

    `without` removes waits, records and synchronisations, by (lane or "host" or "record", event name), to test the race
    detector. `seen_waits` lists the waits that took effect. With `blame`, each buffer keeps its last writers.
    `pending` counts queue entries that have not run.
    """

    def __init__(
        self,
        policy: Policy,
        watcher: Watcher | None,
        held: Sequence[HeldOp],
        without: frozenset[tuple[str, str]],
        blame: bool,
    ) -> None:
        self.policy = policy
        self.watcher = watcher
        self.held: dict[tuple[str, int], set[tuple[str, int]]] = {}
        for hold in held:
            self.held.setdefault(hold.op, set()).add(hold.until)
        self.without = without
        self.blame = blame
        self.buffers: dict[str, Buffer] = {}
        self.step = 0
        self.step_begun = -1
        self.pending = 0
        self.seen_waits: set[tuple[str, str]] = set()

    def decide(self, label: str) -> None:
        """Let the policy run device ops before a host call named `label` takes effect."""
        raise NotImplementedError

    def buffer(
        self, name: str, data: NDArray[Any], pinned: bool = False, lane: str | None = None, whole: bool = False
    ) -> Buffer:
        assert name not in self.buffers, f"buffer {name} exists"
        assert not (pinned and (lane or whole)), f"buffer {name}: pinned memory is the host's too"
        self.buffers[name] = made = self._buffer(name, data, pinned, lane, whole)
        return made

    def _buffer(self, name: str, data: NDArray[Any], pinned: bool, lane: str | None, whole: bool) -> Buffer:
        """Return a new buffer in this machine's memory."""
        raise NotImplementedError

    def point(self, name: str) -> None:
        if self.pending:
            self.decide(name)
        if self.held:
            self.passed((name, self.step))

    def host(self, span: Span, mode: str, written_in: int | None = None) -> "HostView":
        if not span.buffer.pinned:
            raise PermissionError(f"{span.buffer.name} is device memory; the host cannot reach it")
        return HostView(self, span, mode == "w", written_in)

    def close(self) -> None:
        """Do nothing: a GPU may still use the buffers, which Python frees by reference count."""

    def passed(self, label: tuple[str, int]) -> None:
        """Release the ops that are delayed until `label` (name and step of an op or host point)."""
        if self.held:
            for until in self.held.values():
                until.discard(label)
            self.held = {op: until for op, until in self.held.items() if until}


class HostView:
    """Context in which the host accesses pinned memory; the watcher is notified on entry."""

    __slots__ = ("_machine", "_span", "_writes", "_written_in")

    def __init__(self, machine: "BaseMachine", span: Span, writes: bool, written_in: int | None) -> None:
        self._machine = machine
        self._span = span
        self._writes = writes
        self._written_in = written_in

    def __enter__(self) -> NDArray[Any]:
        machine, span = self._machine, self._span
        if machine.pending:
            machine.decide(("write " if self._writes else "read ") + span.buffer.name)
        if machine.watcher is not None:
            machine.watcher.touched(span.place, "out" if self._writes else "in", machine.step, self._written_in)
        if self._writes and machine.blame:
            writer = "host", f"write {span.buffer.name}", machine.step
            span.buffer.writers = (writer, *span.buffer.writers[:1])
        view: NDArray[Any] = span._writable if self._writes else span._readable
        return view

    def __exit__(self, *error: object) -> None:
        return None

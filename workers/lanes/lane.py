"""Protocols of the machine under an engine: memory, lanes (queues), events, watchers.

The engine uses only these protocols; `simulated` and `cuda` implement them independently of each other. Both use the
`Buffer` and `Span` classes of this module, which wrap an array or a tensor.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Mode = Literal["in", "out", "inout", "int"]
# The writer of some memory: a lane or the host, the op, and the step.
Writer: TypeAlias = tuple[str, str, int]


class OpArguments(Protocol):
    """The arguments of one op by name: spans of buffers and plain integers.

    Immutable, compared by identity.

    They alone decide which bytes the op reads and writes.
    """

    @classmethod
    def modes(cls) -> Mapping[str, Mode]:
        """Return whether the op reads or writes each argument, in order."""

    def values(self) -> tuple[Any, ...]:
        """Return all arguments, in order."""

    def check(self, values: Sequence[Any]) -> None:
        """Raise if spans in `values` (all arguments, in order) do not match the declaration.

        Raises:
            TypeError: a span has another dtype or name.
            ValueError: the sizes of the spans and the integers disagree.
        """


A = TypeVar("A", bound=OpArguments)


@cache
def dtype_name(dtype: Any) -> str:
    """Return NumPy's name for the dtype of an array or a tensor."""
    return str(dtype).removeprefix("torch.")


class Span:
    """A range [start, stop) of a flat buffer, as an op or the host sees it.

    `watched` belongs to the watcher.

    `name` says what the range contains (default: the buffer's name). An op receives `input` for a span that it only
    reads and `output` otherwise; both are `tensor` if the buffer has one. `place` is the span under which the watcher
    records accesses to this range under all its names: the whole buffer if the buffer is always written as a whole.
    """

    __slots__ = (
        "_readable",
        "_writable",
        "buffer",
        "described",
        "input",
        "key",
        "name",
        "output",
        "place",
        "tensor",
        "watched",
    )

    def __init__(self, buffer: "Buffer", start: int, stop: int, name: str, place: "Span | None") -> None:
        self.buffer = buffer
        self.place = place if place is not None else self
        self.name = name or buffer.span_name
        self.key = (start, stop)
        # An op checks these: name, dtype and size.
        self.described = (self.name, buffer.dtype, stop - start)
        self.watched: Any = None
        self.output = self._writable = buffer._data[start:stop]
        self.input = self._readable = self._writable if buffer._shown is None else buffer._shown[start:stop]
        self.tensor: Any = None
        if buffer.tensor is not None:
            self.input = self.output = self.tensor = buffer.tensor[start:stop]


class Buffer:
    """Flat memory: device memory, or pinned host memory.

    The host cannot access device memory; it reaches pinned memory through `Machine.host`. `lane` is the only lane that
    may use the memory, if set; `whole` says that each write covers the whole buffer. `accesses` belongs to the watcher;
    `writers` are the last ops and host accesses that wrote the buffer, newest first. `data` is an array, or a tensor if
    the host cannot access the memory; `tensor` is the same memory for ops that take tensors.
    """

    __slots__ = (
        "_data",
        "_shown",
        "_spans",
        "accesses",
        "all",
        "dtype",
        "lane",
        "name",
        "pinned",
        "span_name",
        "tensor",
        "whole",
        "writers",
    )

    def __init__(
        self, name: str, data: Any, pinned: bool, lane: str | None = None, whole: bool = False, tensor: Any = None
    ) -> None:
        assert data.ndim == 1, f"buffer {name} must be flat"
        self.name = name
        self.pinned = pinned
        self.lane = lane
        self.whole = whole
        self.accesses: Any = None
        self.writers: tuple[Writer, ...] = ()
        self.tensor = tensor
        self._data = data
        # A read-only view of the same memory; None for a tensor.
        self._shown: Any = None
        if isinstance(data, np.ndarray):
            self._shown = data.view()
            self._shown.flags.writeable = False
        self._spans: dict[tuple[int, int, str], Span] = {}
        self.dtype = dtype_name(data.dtype)
        # All slots of a ring buffer have the same span name.
        self.span_name = name.partition("[")[0]
        self.all = self.span(0, len(data))

    def span(self, start: int, stop: int, name: str = "") -> Span:
        """Return the range [start, stop) under a name; the same range and name give the same object."""
        found = self._spans.get((start, stop, name))
        if found is None:
            assert 0 <= start <= stop <= len(self._data), f"{self.name}[{start}:{stop}] of {len(self._data)}"
            # The first span that is made covers the whole buffer.
            place = self.all if self.whole and self._spans else self.span(start, stop) if name else None
            found = self._spans[start, stop, name] = Span(self, start, stop, name, place)
        return found

    def close(self) -> None:
        """Drop all spans, which refer to the buffer and to each other."""
        for span in self._spans.values():
            del span.place
        self._spans.clear()
        del self.all


class Lane(Protocol):
    """One in-order queue of device ops, such as a CUDA stream."""

    @property
    def name(self) -> str:
        """Its name in schedules and reports."""

    def launch(self, op: Callable[[A], None], arguments: A) -> None:
        """Enqueue a device op.

        Reuse the arguments object: arguments are checked only the first time they are seen.

        Raises:
            TypeError, ValueError: an argument does not match the op's declaration.
        """

    def capture(self, function: Callable[..., None], *spans: Span) -> None:
        """Call `function` on read-only views of `spans`, taken right after the last enqueued op.

        The views may be copies.
        """

    def wait(self, event: "LaneEvent") -> None:
        """Make everything enqueued on this lane from now on wait for the event's newest record."""


class LaneEvent(Protocol):
    """An event as in CUDA; it may be recorded again.

    A wait uses the record that is newest when the wait is enqueued.
    """

    record_newest: "EventRecord | None"

    @property
    def name(self) -> str:
        """Its name in reports."""

    def record(self, lane: Lane) -> None:
        """Record the event on a lane: a later wait waits for everything enqueued there so far."""

    def synchronize(self) -> None:
        """Block the host until the newest record is done.

        Raises:
            Deadlock: no lane can advance.
        """


class Machine(Protocol):
    """Lanes, events and buffers of one engine.

    `step` labels the ops that are enqueued; `step_begun` is the newest step that the device is known to have begun.
    `seen_waits` lists the waits, records and synchronisations that took effect, by (lane or "host" or "record", event
    name).
    """

    step: int
    step_begun: int
    seen_waits: set[tuple[str, str]]

    @property
    def buffers(self) -> Mapping[str, Buffer]:
        """All buffers by name."""

    def lane(self, name: str) -> Lane:
        """Return the lane with this name."""

    def event(self, name: str) -> LaneEvent:
        """Make an event; reports use its name."""

    def buffer(
        self, name: str, data: NDArray[Any], pinned: bool = False, lane: str | None = None, whole: bool = False
    ) -> Buffer:
        """Make a buffer of memory to which the machine must hold the only reference.

        With `lane`, ops of other lanes may not use the buffer, so its accesses need no events. With `whole`, an op may
        not write only a part of it, so every write conflicts with every read.
        """

    def point(self, name: str) -> None:
        """Mark that the host has reached a named point; ops held until this point are released."""

    def host(self, span: Span, mode: str, written_in: int | None = None) -> AbstractContextManager[NDArray[Any]]:
        """Give the host a view of pinned memory, for reading ("r") or writing ("w").

        A reader may pass `written_in`, the step that wrote the values it expects.

        Raises:
            PermissionError: the buffer is device memory.
        """

    def drain(self) -> None:
        """Run everything that is still enqueued.

        Raises:
            Deadlock: an op can never run.
        """

    def close(self) -> None:
        """Free the memory; the machine must not be used afterwards."""


@dataclass(slots=True)
class EventRecord:
    """One recording of an event on a lane; `done` once everything enqueued before it has run.

    `clock` belongs to the watcher.
    """

    lane: int
    step: int
    done: bool = False
    clock: tuple[int, ...] = ()


class Watcher(Protocol):
    """Receives every memory access and lane ordering, in the order of the host's calls."""

    def launched(self, lane: int, op: str, accesses: Sequence[tuple[Span, Mode]], step: int) -> None:
        """Receive an op that was enqueued, and the memory that it will read and write."""

    def recorded(self, record: EventRecord) -> None:
        """Receive an event that was recorded on its lane."""

    def waited(self, lane: int, record: EventRecord) -> None:
        """Receive a wait: ops enqueued on the lane from now on run after `record`."""

    def synchronized(self, record: EventRecord) -> None:
        """Receive that the host has waited for a record."""

    def touched(self, span: Span, mode: Mode, step: int, written_in: int | None) -> None:
        """Receive a host access to pinned memory.

        `written_in` is the step that wrote the expected values.
        """


class Observer(Watcher, Protocol):
    """A watcher that also receives every event that is made and every op when it runs."""

    def made(self, event: LaneEvent) -> None:
        """Receive an event that was made."""

    def ran(self, lane: int, op: str, uses: Sequence[tuple[Span, Mode]], step: int) -> None:
        """Receive an op that has run or raised, and all memory that it uses."""


class Deadlock(Exception):
    """No lane can advance; holds the waits of the host and between lanes.

    `host` is the lane that the host waits for, if any.

    Each of `waits` is (waiting lane, lane that it waits for, step of the awaited record).
    """

    def __init__(self, host: str | None, waits: tuple[tuple[str, str, int], ...]) -> None:
        super().__init__(host, waits)
        self.host = host
        self.waits = waits

"""Protocols of a machine (simulated or GPU): memory, lanes (streams), events, watchers.

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
    """Arguments of one op by name: spans (buffer ranges) and plain integers.

    Immutable, compared by identity.

    They alone decide which bytes the op reads and writes.
    """

    @classmethod
    def modes(cls) -> Mapping[str, Mode]:
        """Map each argument, in order, to how the op uses it: in, out, inout or int."""

    def values(self) -> tuple[Any, ...]:
        """Return the values of all arguments, in order."""

    def check(self, values: Sequence[Any]) -> None:
        """Raise if the spans in `values` do not have the declared names, dtypes and sizes.

        Raises:
            TypeError: a span has another dtype or name.
            ValueError: the sizes of the spans and the integers disagree.
        """


A = TypeVar("A", bound=OpArguments)


@cache
def dtype_name(dtype: Any) -> str:
    """Return NumPy's name for the dtype of an array or a torch tensor."""
    return str(dtype).removeprefix("torch.")


class Span:
    """Range [start, stop) of a flat buffer, with the name that an op or the host uses for it.

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
    """Flat array in device memory or in pinned host memory.

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
        """Return the named range [start, stop); equal calls return the same object."""
        found = self._spans.get((start, stop, name))
        if found is None:
            assert 0 <= start <= stop <= len(self._data), f"{self.name}[{start}:{stop}] of {len(self._data)}"
            # The first span that is made covers the whole buffer.
            place = self.all if self.whole and self._spans else self.span(start, stop) if name else None
            found = self._spans[start, stop, name] = Span(self, start, stop, name, place)
        return found

    def close(self) -> None:
        """Drop all ranges, which refer to the buffer and to each other (reference cycles)."""
        for span in self._spans.values():
            del span.place
        self._spans.clear()
        del self.all


class Lane(Protocol):
    """One in-order queue of device ops, such as a CUDA stream."""

    @property
    def name(self) -> str:
        """Name of the lane in schedules and reports."""

    def launch(self, op: Callable[[A], None], arguments: A) -> None:
        """Enqueue a device op.

        Reuse the arguments object: arguments are checked only the first time they are seen.

        Raises:
            TypeError, ValueError: an argument does not match the op's declaration.
        """

    def capture(self, function: Callable[..., None], *spans: Span) -> None:
        """Call `function` with the values that `spans` have after the last enqueued op.

        The views may be copies.
        """

    def wait(self, event: "LaneEvent") -> None:
        """Let ops enqueued on this lane from now on wait for the event's newest record."""


class LaneEvent(Protocol):
    """Event as in CUDA, which can be recorded again.

    A wait uses the record that is newest when the wait is enqueued.
    """

    record_newest: "EventRecord | None"

    @property
    def name(self) -> str:
        """Name of the event in reports."""

    def record(self, lane: Lane) -> None:
        """Record the event on a lane: later waits wait for all ops enqueued there so far."""

    def synchronize(self) -> None:
        """Block the host until the newest record is reached.

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
        """All buffers of the machine, by name."""

    def lane(self, name: str) -> Lane:
        """Return the lane with a name."""

    def event(self, name: str) -> LaneEvent:
        """Return a new event; its name is for reports."""

    def buffer(
        self, name: str, data: NDArray[Any], pinned: bool = False, lane: str | None = None, whole: bool = False
    ) -> Buffer:
        """Return a new buffer that owns `data`; nothing else may refer to `data`.

        With `lane`, ops of other lanes may not use the buffer, so its accesses need no events. With `whole`, an op may
        not write only a part of it, so every write conflicts with every read.
        """

    def point(self, name: str) -> None:
        """Record that the host has reached a named point; ops delayed until then may run."""

    def host(self, span: Span, mode: str, written_in: int | None = None) -> AbstractContextManager[NDArray[Any]]:
        """Return a context that gives the host a view of pinned memory, to read or to write.

        A reader may pass `written_in`, the step that wrote the values it expects.

        Raises:
            PermissionError: the buffer is device memory.
        """

    def drain(self) -> None:
        """Run all ops that are still enqueued.

        Raises:
            Deadlock: an op can never run.
        """

    def close(self) -> None:
        """Free the memory; no method may be called afterwards."""


@dataclass(slots=True)
class EventRecord:
    """One recording of an event on a lane; `done` once all ops enqueued before it have run.

    `clock` belongs to the watcher.
    """

    lane: int
    step: int
    done: bool = False
    clock: tuple[int, ...] = ()


class Watcher(Protocol):
    """Interface that receives each memory access, event record and wait, in host-call order."""

    def launched(self, lane: int, op: str, accesses: Sequence[tuple[Span, Mode]], step: int) -> None:
        """Handle the launch of an op, with the memory that it will read and write."""

    def recorded(self, record: EventRecord) -> None:
        """Handle that the host recorded an event on a lane."""

    def waited(self, lane: int, record: EventRecord) -> None:
        """Handle a wait: ops enqueued on the lane from now on run after `record`."""

    def synchronized(self, record: EventRecord) -> None:
        """Handle that the host has waited for an event record."""

    def touched(self, span: Span, mode: Mode, step: int, written_in: int | None) -> None:
        """Handle an access of the host to pinned memory.

        `written_in` is the step that wrote the expected values.
        """


class Observer(Watcher, Protocol):
    """Watcher that also receives each new event, and each op when it runs."""

    def made(self, event: LaneEvent) -> None:
        """Handle a new event."""

    def ran(self, lane: int, op: str, uses: Sequence[tuple[Span, Mode]], step: int) -> None:
        """Handle that an op has run or raised, with all memory that it uses."""


class Deadlock(Exception):
    """No lane can advance; the exception has what the host and each lane wait for.

    `host` is the lane that the host waits for, if any.

    Each of `waits` is (waiting lane, lane that it waits for, step of the awaited record).
    """

    def __init__(self, host: str | None, waits: tuple[tuple[str, str, int], ...]) -> None:
        super().__init__(host, waits)
        self.host = host
        self.waits = waits

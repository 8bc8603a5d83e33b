"""The machine that an engine runs on: its memory, and protocols of lanes, events, and a watcher of their use.

An engine knows these alone; `simulated` and `cuda` are two implementations, neither of which knows the other. Buffers
and spans of both are the same: an array or a tensor each.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Mode = Literal["in", "out", "inout", "int"]
# Who wrote memory: a lane or the host, the op, and the step.
Writer: TypeAlias = tuple[str, str, int]


class OpArguments(Protocol):
    """The arguments of one op by name: spans of buffers and plain integers. Immutable, and compared by identity.

    Which bytes an op reads and writes follows from these alone.
    """

    @classmethod
    def modes(cls) -> Mapping[str, Mode]:
        """Return how the op uses each argument, in order."""

    def values(self) -> tuple[Any, ...]:
        """Return all arguments, in order."""

    def check(self, values: Sequence[Any]) -> None:
        """Refuse spans that are not what the op declares; `values` are all arguments, in order.

        Raises:
            TypeError: a span has another dtype or name.
            ValueError: the sizes of the spans and the integers disagree.
        """


A = TypeVar("A", bound=OpArguments)


@cache
def dtype_name(dtype: Any) -> str:
    """Return the name of an array's or a tensor's dtype, as NumPy names it."""
    return str(dtype).removeprefix("torch.")


class Span:
    """A range [start, stop) of a flat buffer, as an op or the host sees it; `watched` belongs to the watcher.

    `name` says what is in it; by default it is that of the buffer. Ops are given its `input` where they only read, else
    its `output`: the `tensor`, where buffers have one. `place` is the one span of this range that the watcher knows,
    whatever else it is called: of a buffer that is written as a whole, all of it.
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
        # What an op checks of it: name, dtype and size.
        self.described = (self.name, buffer.dtype, stop - start)
        self.watched: Any = None
        self.output = self._writable = buffer._data[start:stop]
        self.input = self._readable = self._writable if buffer._shown is None else buffer._shown[start:stop]
        self.tensor: Any = None
        if buffer.tensor is not None:
            self.input = self.output = self.tensor = buffer.tensor[start:stop]


class Buffer:
    """Flat memory of one place: the device's, or pinned memory of the host.

    Device memory is opaque to the host; pinned memory is reached through `Machine.host`. `lane` is set for memory that
    one lane alone may use, `whole` for memory that is written as a whole or not at all. `accesses` belongs to the
    watcher, `writers` to the blame: the last ops and accesses that wrote it, newest first.
    `data` is an array, or a tensor where the host cannot reach the memory; `tensor` is the same memory for ops that
    take tensors.
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
        # The slots of a ring share a name.
        self.span_name = name.partition("[")[0]
        self.all = self.span(0, len(data))

    def span(self, start: int, stop: int, name: str = "") -> Span:
        """Return the range [start, stop) under a name; the same object for the same range and name."""
        found = self._spans.get((start, stop, name))
        if found is None:
            assert 0 <= start <= stop <= len(self._data), f"{self.name}[{start}:{stop}] of {len(self._data)}"
            # The first span of a buffer is all of it.
            place = self.all if self.whole and self._spans else self.span(start, stop) if name else None
            found = self._spans[start, stop, name] = Span(self, start, stop, name, place)
        return found

    def close(self) -> None:
        """Forget all spans, which refer to the buffer and to each other."""
        for span in self._spans.values():
            del span.place
        self._spans.clear()
        del self.all


class Lane(Protocol):
    """One in-order actor of the device."""

    @property
    def name(self) -> str:
        """Its name, as schedules and reports write it."""

    def launch(self, op: Callable[[A], None], arguments: A) -> None:
        """Enqueue a device op. Keep the arguments for the next launch: they are checked when they are first seen.

        Raises:
            TypeError, ValueError: an argument is not what the op declares.
        """

    def capture(self, function: Callable[..., None], *spans: Span) -> None:
        """Call `function` on read-only copies or views as part of the op enqueued last, whose effects it sees."""

    def wait(self, event: "LaneEvent") -> None:
        """Let nothing enqueued from here on run before the event's newest record is done."""


class LaneEvent(Protocol):
    """A CUDA-like event: re-recordable; a wait takes the record that is newest when the wait is enqueued."""

    record_newest: "EventRecord | None"

    @property
    def name(self) -> str:
        """Its name, as reports write it."""

    def record(self, lane: Lane) -> None:
        """Mark the place in a lane that a later wait waits for."""

    def synchronize(self) -> None:
        """Block the host until the newest record is done.

        Raises:
            Deadlock: no lane can advance.
        """


class Machine(Protocol):
    """Lanes, events and buffers of one engine.

    `step` labels what is enqueued; `step_begun` is the newest step that the device is known to have begun. `seen_waits`
    lists the waits, records and synchronisations that took effect, by (lane or "host" or "record", event name).
    """

    step: int
    step_begun: int
    seen_waits: set[tuple[str, str]]

    @property
    def buffers(self) -> Mapping[str, Buffer]:
        """Every buffer under its name."""

    def lane(self, name: str) -> Lane:
        """Return the lane of this name."""

    def event(self, name: str) -> LaneEvent:
        """Make an event; the name labels it in reports."""

    def buffer(
        self, name: str, data: NDArray[Any], pinned: bool = False, lane: str | None = None, whole: bool = False
    ) -> Buffer:
        """Give memory to the machine, which must hold the only reference to it.

        With `lane`, no op of another lane may use it: its accesses are ordered by that lane alone. With `whole`, no op
        may write a part of it, so that every write conflicts with every read.
        """

    def point(self, name: str) -> None:
        """Pass a named point of the host; what is held until then is released."""

    def host(self, span: Span, mode: str, written_in: int | None = None) -> AbstractContextManager[NDArray[Any]]:
        """Give the host a view of pinned memory, for reading ("r") or writing ("w").

        A reader may say in which step the values it expects were written.

        Raises:
            PermissionError: the buffer is device memory.
        """

    def drain(self) -> None:
        """Run everything that is still enqueued.

        Raises:
            Deadlock: something can never run.
        """

    def close(self) -> None:
        """Free its memory; the machine must not be used afterwards."""


@dataclass(slots=True)
class EventRecord:
    """One recording of an event on a lane: done once everything enqueued before it has run.

    `clock` belongs to the watcher.
    """

    lane: int
    step: int
    done: bool = False
    clock: tuple[int, ...] = ()


class Watcher(Protocol):
    """Receiver of every access and every ordering on a machine, in the order of the host's calls."""

    def launched(self, lane: int, op: str, accesses: Sequence[tuple[Span, Mode]], step: int) -> None:
        """Note that an op was enqueued, and what it will read and write."""

    def recorded(self, record: EventRecord) -> None:
        """Note that an event was recorded on its lane."""

    def waited(self, lane: int, record: EventRecord) -> None:
        """Note that a lane waits for a record before whatever is enqueued on it next."""

    def synchronized(self, record: EventRecord) -> None:
        """Note that the host has waited for a record."""

    def touched(self, span: Span, mode: Mode, step: int, written_in: int | None) -> None:
        """Note that the host reads or writes pinned memory; `written_in` is the step whose values it expects there."""


class Observer(Watcher, Protocol):
    """A watcher that also receives every event that is made, and every op when it runs."""

    def made(self, event: LaneEvent) -> None:
        """Note that an event was made."""

    def ran(self, lane: int, op: str, uses: Sequence[tuple[Span, Mode]], step: int) -> None:
        """Note that an op has run, or has raised, and all the memory it was given."""


class Deadlock(Exception):
    """No lane can advance: which lane the host waits for, if it does, and for which record of a lane each lane waits.

    `waits` has a lane, the lane that it waits for, and the step of the record.
    """

    def __init__(self, host: str | None, waits: tuple[tuple[str, str, int], ...]) -> None:
        super().__init__(host, waits)
        self.host = host
        self.waits = waits

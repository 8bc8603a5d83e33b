"""The seam between an engine and its machine: buffers, spans of them, device ops, and what may watch their use.

A device op is a function whose parameters are annotated `Annotated[..., "in" | "out" | "inout"]` or `int`.
Which bytes it reads and writes follows from that signature and from the spans it is launched with.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from inspect import signature
from typing import Any, Literal, Protocol, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

Mode = Literal["in", "out", "inout", "int"]
Function = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Op:
    """A device op: its name, its function, and how it uses each argument."""

    name: str
    function: Function
    modes: tuple[Mode, ...]


@lru_cache(maxsize=1024)
def op_of(function: Function) -> Op:
    """Read an op's access modes from its signature.

    Raises:
        TypeError: a parameter is neither an annotated buffer nor an int.
    """
    hints = get_type_hints(function, include_extras=True)
    modes: list[Mode] = []
    for parameter in signature(function).parameters:
        marks = [mark for mark in get_args(hints[parameter]) if mark in ("in", "out", "inout")]
        if not marks and hints[parameter] is not int:
            raise TypeError(f"op {function.__name__}: parameter {parameter} is neither In, Out, InOut nor int")
        modes.append(marks[0] if marks else "int")
    name = getattr(function, "op_name", function.__name__)
    return Op(name, function, tuple(modes))


class Span:
    """A range [start, stop) of a flat buffer, as an op or the host sees it; `watched` belongs to the watcher.

    Ops see the `tensor`, where buffers have one.
    """

    __slots__ = ("_readable", "_writable", "buffer", "key", "tensor", "watched")

    def __init__(self, buffer: "Buffer", start: int, stop: int) -> None:
        self.buffer = buffer
        self.key = (start, stop)
        self.watched: Any = None
        self.tensor: Any = None if buffer.tensor is None else buffer.tensor[start:stop]
        self._writable = self._readable = buffer._data[start:stop]
        if isinstance(self._writable, np.ndarray):
            self._readable = self._writable.view()
            self._readable.flags.writeable = False


class Buffer:
    """Flat memory of one place: the device's, or pinned memory of the host.

    Device memory is opaque to the host; pinned memory is reached through `Machine.host`. `lane` is set for memory that
    one lane alone may use, `whole` for memory that is written as a whole or not at all. `accesses` belongs to the
    watcher, `writers` to the blame. `data` is an array, or a tensor where the host cannot reach the memory; `tensor` is
    the same memory for ops that take tensors, `all` the span of the whole.
    """

    __slots__ = ("_data", "_spans", "accesses", "all", "lane", "name", "pinned", "tensor", "whole", "writers")

    def __init__(
        self, name: str, data: Any, pinned: bool, lane: str | None = None, whole: bool = False, tensor: Any = None
    ) -> None:
        assert data.ndim == 1, f"buffer {name} must be flat"
        self.name = name
        self.pinned = pinned
        self.lane = lane
        self.whole = whole
        self.accesses: Any = None
        self.writers: tuple[str, ...] = ()
        self.tensor = tensor
        self._data = data
        self._spans: dict[tuple[int, int], Span] = {}
        self.all = self.span(0, len(data))

    def span(self, start: int, stop: int) -> Span:
        """Return the range [start, stop); the same object for the same range."""
        found = self._spans.get((start, stop))
        if found is None:
            assert 0 <= start <= stop <= len(self._data), f"{self.name}[{start}:{stop}] of {len(self._data)}"
            found = self._spans[start, stop] = Span(self, start, stop)
        return found


@dataclass(slots=True)
class Record:
    """One recording of an event on a lane: done once everything enqueued before it has run.

    `clock` belongs to the watcher.
    """

    lane: int
    step: int
    done: bool = False
    clock: tuple[int, ...] = ()


class Watcher(Protocol):
    """What may watch a machine: told of every access and every ordering, in the order of the host's calls."""

    def launched(self, lane: int, op: str, accesses: Sequence[tuple[Span, Mode]], step: int) -> None:
        """Note that an op was enqueued, and what it will read and write."""

    def recorded(self, record: Record) -> None:
        """Note that an event was recorded on its lane."""

    def waited(self, lane: int, record: Record) -> None:
        """Note that a lane waits for a record before whatever is enqueued on it next."""

    def synchronized(self, record: Record) -> None:
        """Note that the host has waited for a record."""

    def touched(self, span: Span, mode: Mode, step: int, written_in: int | None) -> None:
        """Note that the host reads or writes pinned memory; `written_in` is the step whose values it expects there."""


class Deadlock(Exception):
    """The host waits for something that no lane can ever do; the message is the wait graph."""


def device_array(length: int, dtype: type = np.int64, fill: float = 0) -> NDArray[Any]:
    """Allocate the flat contents of a buffer."""
    return np.full(length, fill, dtype=dtype)

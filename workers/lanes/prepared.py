"""An op with its arguments, checked once and launched many times, and the probes that look at what it did."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from workers.lanes.lane import Buffer, Mode, Op, Span


class Prepared:
    """An op and its arguments on one lane, checked once.

    `views` is what it is called with, `accesses` what it does to memory that several lanes or the host may reach,
    `outputs` the buffers it writes.
    """

    __slots__ = ("accesses", "op", "outputs", "views")

    def __init__(self, lane: str, op: Op, arguments: Sequence[Span | int]) -> None:
        self.op = op
        self.views: list[Any] = []
        self.accesses: list[tuple[Span, Mode]] = []
        self.outputs: list[Buffer] = []
        for mode, argument in zip(op.modes, arguments, strict=True):
            if mode == "int":
                if type(argument) is not int:
                    raise TypeError(f"op {op.name}: expected a plain int, got {type(argument).__name__}")
                self.views.append(argument)
            elif type(argument) is Span:
                view = argument._readable if mode == "in" else argument._writable
                self.views.append(view if argument.tensor is None else argument.tensor)
                self._access(lane, argument, mode)
                if mode != "in":
                    self.outputs.append(argument.buffer)
            else:
                raise TypeError(f"op {op.name}: expected a span of a buffer, got {type(argument).__name__}")

    def _access(self, lane: str, span: Span, mode: Mode) -> None:
        buffer = span.buffer
        if buffer.lane is not None:
            if buffer.lane != lane:
                raise PermissionError(f"op {self.op.name} on {lane}: {buffer.name} belongs to {buffer.lane}")
            return
        if buffer.whole:
            if mode != "in" and span is not buffer.all:
                raise ValueError(f"op {self.op.name}: {buffer.name} is written as a whole or not at all")
            span = buffer.all
        if (span, mode) not in self.accesses:
            self.accesses.append((span, mode))


class Launch:
    """A prepared op at its place in a lane, and the probes that are part of it."""

    __slots__ = ("prepared", "probes", "step")

    def __init__(self, prepared: Prepared, step: int) -> None:
        self.prepared = prepared
        self.step = step
        self.probes: list[Probe] = []


@dataclass(frozen=True, slots=True)
class Probe:
    """A look at memory in stream order: it is no decision point, orders nothing, and no watcher hears of it."""

    function: Callable[..., None]
    views: tuple[NDArray[Any], ...]

"""Device ops with their arguments, checked once and launched many times, and the captures of what they did.

A device op is a function whose parameters are annotated `Annotated[..., "in" | "out" | "inout"]` or `int`.
Which bytes it reads and writes follows from that signature and from the spans it is launched with.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from inspect import signature
from typing import Any, get_args, get_type_hints

from numpy.typing import NDArray

from workers.lanes.buffers import FlatBuffer, FlatSpan
from workers.lanes.lane import Function, Mode, Span


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


class Prepared:
    """An op and its arguments on one lane, checked once.

    `views` is what it is called with, `accesses` what it does to memory that several lanes or the host may reach,
    `outputs` the buffers it writes.
    """

    __slots__ = ("accesses", "op", "outputs", "views")

    def __init__(self, lane: str, op: Op, arguments: Sequence[Span | int]) -> None:
        self.op = op
        self.views: list[Any] = []
        self.accesses: list[tuple[FlatSpan, Mode]] = []
        self.outputs: list[FlatBuffer] = []
        for mode, argument in zip(op.modes, arguments, strict=True):
            if mode == "int":
                if type(argument) is not int:
                    raise TypeError(f"op {op.name}: expected a plain int, got {type(argument).__name__}")
                self.views.append(argument)
            elif type(argument) is FlatSpan:
                view = argument._readable if mode == "in" else argument._writable
                self.views.append(view if argument.tensor is None else argument.tensor)
                self._access(lane, argument, mode)
                if mode != "in":
                    self.outputs.append(argument.buffer)
            else:
                raise TypeError(f"op {op.name}: expected a span of a buffer, got {type(argument).__name__}")

    def _access(self, lane: str, span: FlatSpan, mode: Mode) -> None:
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
    """A prepared op at its place in a lane, and the captures that are part of it."""

    __slots__ = ("captures", "prepared", "step")

    def __init__(self, prepared: Prepared, step: int) -> None:
        self.prepared = prepared
        self.step = step
        self.captures: list[Capture] = []


@dataclass(frozen=True, slots=True)
class Capture:
    """A look at memory in stream order: it is no decision point, orders nothing, and no watcher hears of it."""

    function: Callable[..., None]
    views: tuple[NDArray[Any], ...]

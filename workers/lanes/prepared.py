"""Ops with arguments that were checked, and captures (reads of memory after an op).

A device op is a function of one arguments object; the object's class declares which arguments are read and written.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, get_type_hints

from numpy.typing import NDArray

from workers.lanes.lane import Buffer, Mode, OpArguments, Span

Function = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Op:
    """Device op: name, function, and each argument's name and mode (in, out, inout, int).

    `kinds` are the types of the arguments. `spans` has index and mode of each argument that is a span; `places_read`
    are the indexes of spans that are only read, `places_written` of all other spans.
    """

    name: str
    function: Function
    arguments: Any
    modes: tuple[tuple[str, Mode], ...]
    kinds: tuple[type, ...]
    spans: tuple[tuple[int, Mode], ...]
    places_read: tuple[int, ...]
    places_written: tuple[int, ...]


@lru_cache(maxsize=1024)
def op_of(function: Function) -> Op:
    """Build the op of a function, from the arguments class in its signature.

    Raises:
        TypeError: the function does not take exactly one arguments object.
    """
    hints = [hint for name, hint in get_type_hints(function).items() if name != "return"]
    name = getattr(function, "op_name", function.__name__)
    if len(hints) != 1 or not hasattr(hints[0], "modes"):
        raise TypeError(f"op {name} must take exactly one arguments object")
    modes = tuple(hints[0].modes().items())
    spans = tuple((at, mode) for at, (_, mode) in enumerate(modes) if mode != "int")
    return Op(
        name,
        function,
        hints[0],
        modes,
        kinds=tuple(int if mode == "int" else Span for _, mode in modes),
        spans=spans,
        places_read=tuple(at for at, mode in spans if mode == "in"),
        places_written=tuple(at for at, mode in spans if mode != "in"),
    )


class PreparedOp:
    """An op with arguments that were checked once, for one lane.

    `function` is the op's function, `arguments` what it is called with, `accesses` its accesses to memory that other
    lanes or the host may use.
    """

    __slots__ = ("_given", "accesses", "arguments", "function", "op")

    def __init__(self, lane: str, op: Op, given: OpArguments) -> None:
        self.op, self.function = op, op.function
        self._given = given
        if not isinstance(given, op.arguments):
            raise TypeError(f"op {op.name}: expected {op.arguments.__name__}, got {type(given).__name__}")
        values = given.values()
        if tuple(map(type, values)) != op.kinds:
            raise self._mistyped(values)
        self.accesses: list[tuple[Span, Mode]] = []
        for at, mode in op.spans:
            span = values[at]
            if span.buffer.lane != lane:
                self._access(lane, span, mode)
        given.check(values)
        memory = [*values]
        for at in op.places_read:
            memory[at] = memory[at].input
        for at in op.places_written:
            memory[at] = memory[at].output
        self.arguments: Any = op.arguments(*memory)

    def _mistyped(self, values: Sequence[Any]) -> TypeError:
        """Return the error for the first argument of a wrong type."""
        for (name, mode), kind, value in zip(self.op.modes, self.op.kinds, values, strict=True):
            if type(value) is not kind:
                expected = "a plain int" if mode == "int" else "a span of a buffer"
                return TypeError(f"op {self.op.name}, {name}: expected {expected}, got {type(value).__name__}")
        raise AssertionError(f"op {self.op.name}: no argument has a wrong type")

    @property
    def outputs(self) -> list[Buffer]:
        """Buffers that the op writes."""
        values = self._given.values()
        return [values[at].buffer for at in self.op.places_written]

    def uses(self) -> list[tuple[Span, Mode]]:
        """Return all spans that the op accesses, with modes, including its lane's own buffers."""
        pairs = zip(self.op.modes, self._given.values(), strict=True)
        return [(argument, mode) for (_, mode), argument in pairs if mode != "int"]

    def _access(self, lane: str, span: Span, mode: Mode) -> None:
        buffer = span.buffer
        if buffer.lane is not None:
            raise PermissionError(f"op {self.op.name} on {lane}: {buffer.name} may be used on {buffer.lane} only")
        if buffer.whole and mode != "in" and span.key != buffer.all.key:
            raise ValueError(f"op {self.op.name}: {buffer.name} must be written as a whole")
        access = (span.place, mode)
        if access not in self.accesses:
            self.accesses.append(access)


class Launch:
    """A prepared op in a lane's queue, with the captures that follow it."""

    __slots__ = ("captures", "prepared", "step")

    def __init__(self, prepared: PreparedOp, step: int) -> None:
        self.prepared = prepared
        self.step = step
        self.captures: list[Capture] = []


@dataclass(frozen=True, slots=True)
class Capture:
    """A read of memory in stream order, and the function that receives the values.

    A capture is not a decision point, orders nothing, and is not reported to the watcher.
    """

    function: Callable[..., None]
    views: tuple[NDArray[Any], ...]

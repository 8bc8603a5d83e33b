"""Device ops with their arguments, checked once and launched many times, and the captures of what they did.

A device op is a function of one object of arguments, which says how it uses each.
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
    """A device op: its name, its function, the class of its arguments, and how it uses each of them.

    `kinds` are the types of what it is launched with, `spans` the places of those that are spans, and their modes;
    `places_read` and `places_written` are those of spans that it only reads, and of the others.
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
    """Return the op of a function, with the arguments that its signature declares.

    Raises:
        TypeError: it does not take one object of arguments.
    """
    hints = [hint for name, hint in get_type_hints(function).items() if name != "return"]
    name = getattr(function, "op_name", function.__name__)
    if len(hints) != 1 or not hasattr(hints[0], "modes"):
        raise TypeError(f"op {name} does not take one object of arguments")
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


class Prepared:
    """An op and its arguments on one lane, checked once.

    `function` is the op's, `arguments` what it is called with, `accesses` what it does to memory that several lanes or
    the host may reach.
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
        """Return the error of the first argument of a wrong type."""
        for (name, mode), kind, value in zip(self.op.modes, self.op.kinds, values, strict=True):
            if type(value) is not kind:
                expected = "a plain int" if mode == "int" else "a span of a buffer"
                return TypeError(f"op {self.op.name}, {name}: expected {expected}, got {type(value).__name__}")
        raise AssertionError(f"op {self.op.name}: every argument is of its kind")

    @property
    def outputs(self) -> list[Buffer]:
        """The buffers it writes."""
        values = self._given.values()
        return [values[at].buffer for at in self.op.places_written]

    def uses(self) -> list[tuple[Span, Mode]]:
        """Return all spans it is given and their modes, memory of a single lane included."""
        pairs = zip(self.op.modes, self._given.values(), strict=True)
        return [(argument, mode) for (_, mode), argument in pairs if mode != "int"]

    def _access(self, lane: str, span: Span, mode: Mode) -> None:
        buffer = span.buffer
        if buffer.lane is not None:
            raise PermissionError(f"op {self.op.name} on {lane}: {buffer.name} belongs to {buffer.lane}")
        if buffer.whole and mode != "in" and span.key != buffer.all.key:
            raise ValueError(f"op {self.op.name}: {buffer.name} is written as a whole or not at all")
        access = (span.place, mode)
        if access not in self.accesses:
            self.accesses.append(access)


class Launch:
    """A prepared op at its place in a lane, and the captures that are part of it."""

    __slots__ = ("captures", "prepared", "step")

    def __init__(self, prepared: Prepared, step: int) -> None:
        self.prepared = prepared
        self.step = step
        self.captures: list[Capture] = []


@dataclass(frozen=True, slots=True)
class Capture:
    """A read of memory in stream order, and the function to call with it.

    No decision point, no ordering, no call of the watcher.
    """

    function: Callable[..., None]
    views: tuple[NDArray[Any], ...]

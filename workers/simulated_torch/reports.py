"""Reports of the simulated device: each race with its buffer, ops, streams and source lines."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from workers.simulated_torch.native import Lines, NativeRace, NativeSide

_PACKAGES = ("site-packages/", "dist-packages/")


@dataclass(frozen=True, slots=True)
class SourceLine:
    """Line of a source file, with a path relative to the program's folder or site-packages."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


@dataclass(frozen=True, slots=True)
class Access:
    """One read or write of memory by the host or by a task of a stream (`actor`).

    `op` is the launched op, in `step`, launched from `lines`. `lines` is empty for threads without Python code, such as
    autograd's.
    """

    actor: str
    write: bool
    op: str
    step: int
    lines: tuple[SourceLine, ...]

    def __str__(self) -> str:
        who = "the host" if self.actor == "host" else f"{self.actor}:{self.op}@{self.step}"
        where = f" ({self.lines[0]})" if self.lines else ""
        return f"the {'write' if self.write else 'read'} by {who}{where}"


@dataclass(frozen=True, slots=True)
class Race:
    """Two accesses to the same bytes, at least one a write, that no event or wait orders.

    `buffer` is the owner of the memory at the first access; `reused_as` is the owner at the second, if the memory was
    freed and allocated again in between. The byte range [low, high) is relative to the start of the buffer. `count` is
    how often these two lines raced.
    """

    buffer: str
    reused_as: str | None
    low: int
    high: int
    first: Access
    second: Access
    count: int
    allocated: tuple[SourceLine, ...] = ()

    def __str__(self) -> str:
        memory = f"both use {self.buffer}, {self.place}"
        if self.reused_as is not None:
            memory = f"the memory of {self.buffer} was reused as {self.reused_as}"
        often = f", {self.count} times" if self.count > 1 else ""
        return f"nothing orders {self.first} before {self.second} ({memory}{often})"

    @property
    def place(self) -> str:
        """The bytes that both accesses use; for a host access only the first one is known."""
        return f"at byte {self.low}" if self.high == self.low + 1 else f"bytes {self.low} to {self.high}"

    @property
    def lines(self) -> tuple[str, ...]:
        """Lines of text that report the race."""
        often = f"{self.count} times" if self.count > 1 else "once"
        reused = () if self.reused_as is None else (f"      reused as {self.reused_as}",)
        return (
            f"RACE  {self.buffer}, {self.place}, {often}",
            *reused,
            f"      nothing orders {self.first}",
            *(f"        called from {line}" for line in self.first.lines[1:]),
            f"      before {self.second}",
            *(f"        called from {line}" for line in self.second.lines[1:]),
        )


@dataclass(frozen=True, slots=True)
class Bypass:
    """Direct access of the host to device memory, which a GPU does not allow (option `closed`).

    The call computed immediately instead of being queued, so the reported races are not reliable.
    """

    buffer: str
    access: Access

    def __str__(self) -> str:
        return f"{self.access} of {self.buffer}, which is device memory: the call there is not queued"


@dataclass(frozen=True, slots=True)
class Order:
    """Ordering calls (e.g. event waits) at one source line, and their number."""

    line: SourceLine
    calls: tuple[str, ...]
    count: int

    def __str__(self) -> str:
        return f"{'+'.join(self.calls)} at {self.line}"


@dataclass(frozen=True, slots=True)
class Report:
    """Report of a run: races, direct host accesses to device memory, counters.

    `forced` counts the operators without a shape function, which ran while the host waited although a GPU's host would
    not: each may hide races.
    """

    races: tuple[Race, ...]
    bypasses: tuple[Bypass, ...]
    counts: Mapping[str, int]
    forced: Mapping[str, int]


def orders_of(native: Iterable[tuple[str, Lines, int]], root: Path) -> tuple[Order, ...]:
    """Group the calls that order tasks by source line, sorted by file and line."""
    calls: dict[SourceLine, Counter[str]] = {}
    for call, lines, count in native:
        for line in source_lines(lines, root)[:1]:
            calls.setdefault(line, Counter())[call] += count
    by_place = sorted(calls, key=lambda line: (line.file, line.line))
    return tuple(Order(line, tuple(sorted(calls[line])), max(calls[line].values())) for line in by_place)


def race_of(native: NativeRace, root: Path) -> Race:
    """Convert a race from the form of the C++ library; paths become relative to `root`."""
    first, second = native["first"], native["second"]
    reused = first["tenancy"] != second["tenancy"]
    return Race(
        buffer=_buffer(first, root),
        reused_as=_buffer(second, root) if reused else None,
        low=native["low"],
        high=native["high"],
        first=access_of(first, root),
        second=access_of(second, root),
        count=native["count"],
        allocated=source_lines(first["allocated"], root) if not first["buffer"] else (),
    )


def bypass_of(native: NativeSide, root: Path) -> Bypass:
    """Convert a host access from the form of the C++ library; paths become relative to `root`."""
    return Bypass(_buffer(native, root), access_of(native, root))


def source_lines(lines: Lines, root: Path) -> tuple[SourceLine, ...]:
    """Convert a stack, innermost line first; file paths become relative to `root`."""
    return tuple(SourceLine(_relative(file, root), line, function) for file, line, function in lines)


def access_of(side: NativeSide, root: Path) -> Access:
    """Convert an access from the form of the C++ library; paths become relative to `root`."""
    return Access(side["actor"], side["write"], side["op"], side["step"], source_lines(side["lines"], root))


def _buffer(side: NativeSide, root: Path) -> str:
    if side["buffer"]:
        return side["buffer"]
    lines = source_lines(side["allocated"], root)
    where = f" allocated at {lines[0].file}:{lines[0].line}" if lines else ""
    return f"a buffer of {side['size']} bytes{where}"


def _relative(file: str, root: Path) -> str:
    for folder in _PACKAGES:
        _, found, inside = file.rpartition(folder)
        if found:
            return inside
    path = Path(file)
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name

"""Reports of the simulated device: races with buffer, op, stream and source line of both sides."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from workers.simulated_torch.native import Lines, NativeRace, NativeSide

_PACKAGES = ("site-packages/", "dist-packages/")


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the program; `file` is relative to its root or to the folder of installed packages."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


@dataclass(frozen=True, slots=True)
class Access:
    """One use of memory: `actor` is the host or a stream, `op` what it launched in which step, `lines` from where.

    `lines` is empty for a thread that runs no Python, as those of the autograd engine are.
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
    """Two accesses of the same bytes, at least one a write, that nothing orders.

    `buffer` is the owner of the memory at the first; `reused_as` its owner at the second, if it had been freed and
    handed out again. The bytes [low, high) are counted from the beginning of the buffer. `count` says how often these
    two lines raced.
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
            memory = f"the memory of {self.buffer} was handed out again as {self.reused_as}"
        often = f", {self.count} times" if self.count > 1 else ""
        return f"nothing orders {self.first} before {self.second} ({memory}{often})"

    @property
    def place(self) -> str:
        """The bytes of the buffer: of an access of the host only its first byte is known."""
        return f"at byte {self.low}" if self.high == self.low + 1 else f"bytes {self.low} to {self.high}"

    @property
    def lines(self) -> tuple[str, ...]:
        """The race as lines of text."""
        often = f"{self.count} times" if self.count > 1 else "once"
        reused = () if self.reused_as is None else (f"      handed out again as {self.reused_as}",)
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
    """An access of the host to memory of the device, in a run that closes it.

    The call computes at once instead of being queued, and the races that the run reports are not to be trusted.
    """

    buffer: str
    access: Access

    def __str__(self) -> str:
        return f"{self.access} of {self.buffer}, which is memory of the device: what is called there is not queued"


@dataclass(frozen=True, slots=True)
class Order:
    """Calls made from one line that order work, by their names, and how often the line made one."""

    line: SourceLine
    calls: tuple[str, ...]
    count: int

    def __str__(self) -> str:
        return f"{'+'.join(self.calls)} at {self.line}"


@dataclass(frozen=True, slots=True)
class Report:
    """Result of a run on the device.

    `forced` are the operators without a shape function, which ran while the host waited where a GPU's host would not:
    each of them may hide races.
    """

    races: tuple[Race, ...]
    bypasses: tuple[Bypass, ...]
    counts: Mapping[str, int]
    forced: Mapping[str, int]


def orders_of(native: Iterable[tuple[str, Lines, int]], root: Path) -> tuple[Order, ...]:
    """Return the calls that order work by the line that made them, whatever called it, in the order of lines."""
    calls: dict[SourceLine, Counter[str]] = {}
    for call, lines, count in native:
        for line in source_lines(lines, root)[:1]:
            calls.setdefault(line, Counter())[call] += count
    by_place = sorted(calls, key=lambda line: (line.file, line.line))
    return tuple(Order(line, tuple(sorted(calls[line])), max(calls[line].values())) for line in by_place)


def race_of(native: NativeRace, root: Path) -> Race:
    """Return a race with the paths of its lines made relative."""
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
    """Return an access to memory of the device with the paths of its lines made relative."""
    return Bypass(_buffer(native, root), access_of(native, root))


def source_lines(lines: Lines, root: Path) -> tuple[SourceLine, ...]:
    """Return lines of the program, innermost first, with relative paths."""
    return tuple(SourceLine(_relative(file, root), line, function) for file, line, function in lines)


def access_of(side: NativeSide, root: Path) -> Access:
    """Return an access with the paths of its lines made relative."""
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

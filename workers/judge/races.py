"""Race detector: find unordered accesses to the same memory with vector clocks.

A *lane* is a stream of the simulated device; the host counts as one more.

Clocks are taken when an op is enqueued, so one run without a race covers every schedule of the same trace.

Verifies: each two accesses of memory that several lanes or the host use, by buffer and range, are ordered by lane
program order, event records and waits, unless both are reads.

Does not verify: memory that neither a device op nor `Machine.host` accesses.
"""

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from workers.judge.judge import Case, End, Judge
from workers.lanes.lane import Buffer, EventRecord, Mode, Span
from workers.record.evidence import HOST, RACES, Access, Difference, MissingOrder, fact

# One access of memory: its number, lane (the last is the host), local time of the lane, op, step.
_Use: TypeAlias = tuple[int, int, int, str, int]
_How: TypeAlias = Literal["read", "write"]
Range: TypeAlias = tuple[int, int]


class _Cell:
    """One accessed memory range, with its last accesses for comparison with later ones.

    - `writes`: by cell, the last write that overlaps this range.
    - `reads`: by lane, the last read of exactly this range.
    - `overlapping`: the cells that overlap this one, including itself, and whether this cell covers them.

    An access ordered after a write is ordered after everything before that write. So a write replaces all accesses of
    the ranges that it covers.
    """

    __slots__ = ("overlapping", "reads", "writes")

    def __init__(self) -> None:
        self.writes: dict[_Cell, _Use] = {}
        self.reads: dict[int, _Use] = {}
        self.overlapping: list[tuple[_Cell, bool]] = []


class RaceDetector:
    """Watches the simulated streams; keeps the first race, and counts accesses.

    The local time of a lane is its number of event records: a wait on a record covers all accesses before it.
    """

    def __init__(self, lanes: Sequence[str]) -> None:
        self.race: MissingOrder | None = None
        self.num_accesses = 0
        self._names = (*lanes, HOST)
        # The vector clock of each lane, without the host's clock, which precedes everything launched later.
        self._clocks = [[0] * len(self._names) for _ in self._names]
        for own, clock in enumerate(self._clocks):
            clock[own] = 1
        self._host, self._host_clock = len(lanes), self._clocks[-1]

    def launched(self, lane: int, op: str, accesses: Sequence[tuple[Span, Mode]], step: int) -> None:
        """Check an op's memory accesses against unordered earlier ones (host waits order too)."""
        clock, host = self._clocks[lane], self._host_clock
        self.num_accesses += len(accesses)
        access = self.num_accesses, lane, clock[lane], op, step
        for span, mode in accesses:
            cell: _Cell = span.watched or _cell_of(span)
            for write in cell.writes.values():
                if clock[write[1]] < write[2] and host[write[1]] < write[2]:
                    self._report(span.buffer, write, access, "write", mode)
            if mode == "in":
                cell.reads[lane] = access
                continue
            for other, is_covered in cell.overlapping:
                for read in other.reads.values():
                    if clock[read[1]] < read[2] and host[read[1]] < read[2]:
                        self._report(span.buffer, read, access, "read", mode)
                if is_covered:
                    other.writes, other.reads = {cell: access}, {}
                else:
                    other.writes[cell] = access

    def recorded(self, record: EventRecord) -> None:
        """Store the stream's vector clock in an event record; advance its local time.

        A clock that includes the record's time includes the record's whole clock. The host's clock is not merged in:
        `launched` checks it separately, and it only grows.
        """
        clock = self._clocks[record.lane]
        record.clock = tuple(clock)
        clock[record.lane] += 1

    def waited(self, lane: int, record: EventRecord) -> None:
        """Merge an event record's clock into the clock of the stream that waits for it."""
        clock, of = self._clocks[lane], record.lane
        if clock[of] < record.clock[of]:
            # Few components are newer: a loop is faster than building a list.
            for other, time in enumerate(record.clock):
                if clock[other] < time:
                    clock[other] = time

    def synchronized(self, record: EventRecord) -> None:
        """Merge an event record's clock into the host's, which has waited for it."""
        self.waited(self._host, record)

    def touched(self, span: Span, mode: Mode, step: int, written_in: int | None) -> None:
        """Check a host access; the last write to its memory must be by step `written_in`."""
        self.launched(self._host, "access", ((span, mode),), step)
        if written_in is not None and span.watched.writes:
            newest = max(span.watched.writes.values())
            if newest[4] != written_in:
                access = self.num_accesses, self._host, 1, "access", step
                self._report(span.buffer, newest, access, "write", mode, replaced=written_in)

    def _report(
        self, buffer: Buffer, earlier: _Use, access: _Use, how: _How, mode: Mode, replaced: int | None = None
    ) -> None:
        if self.race is None:
            first = self._access(earlier, how, replaced)
            second = self._access(access, "read" if mode == "in" else "write")
            self.race = MissingOrder(first=first, second=second, memory=buffer.name)

    def _access(self, use: _Use, how: _How, replaced: int | None = None) -> Access:
        _, lane, _, op, step = use
        return Access(lane=self._names[lane], op=op, step=step, how=how, replaced=replaced)


class Races(Judge):
    """Judge of races; `first` returns the first race of the run, or None."""

    planes = (RACES,)

    def __init__(self, first: Callable[[], MissingOrder | None]) -> None:
        self.first = first

    @classmethod
    def of(cls, case: Case) -> "Races | None":
        """Return the judge; None for a run without a race detector."""
        return cls(case.first_race) if case.first_race is not None else None

    def at_end(self, end: End) -> Difference | None:
        race = self.first()
        if race is None:
            return None
        sites = race.first.site, race.second.site
        return Difference(
            plane=RACES,
            variable=race.memory if None in sites else f"{race.first.actor} and {race.second.actor}",
            step=race.second.step,
            expected=fact("order"),
            actual=fact("no_order"),
            missing_order=race,
        )


def _cell_of(span: Span) -> _Cell:
    """Return the `_Cell` of a memory range; link a new one to all cells that it overlaps."""
    buffer = span.buffer
    if buffer.accesses is None:
        buffer.accesses = {}
    cells: dict[Range, _Cell] = buffer.accesses
    cell = cells.get(span.key)
    if cell is None:
        start, stop = span.key
        cell = cells[span.key] = _Cell()
        for (low, high), other in cells.items():
            if max(start, low) < min(stop, high):
                cell.overlapping.append((other, start <= low and high <= stop))
                if other is cell:
                    continue
                other.overlapping.append((cell, low <= start and stop <= high))
                # Only the other cell's own write is copied: if a wider cell's write replaced it, that cell is linked.
                if other in other.writes:
                    cell.writes[other] = other.writes[other]
    span.watched = cell
    return cell

"""Race detector: find unordered accesses to the same memory with vector clocks, whatever the timing of the run.

Verifies: every use of memory that several lanes or the host may reach, by (buffer, range), against the order given by
lane program order, event records and waits.
Does not verify: memory that is reached by neither a device op nor `Machine.host`.
Clocks are taken when an op is enqueued, so one run stands for every schedule of the same trace.
"""

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from workers.judge.judge import Case, End, Judge
from workers.lanes.lane import Buffer, EventRecord, Mode, Span
from workers.record.evidence import HOST, RACES, Access, Difference, MissingOrder, fact

# One use of memory: its number, lane (the last is the host), local time, op, step.
_Use: TypeAlias = tuple[int, int, int, str, int]
_How: TypeAlias = Literal["read", "write"]
Range: TypeAlias = tuple[int, int]


class _Cell:
    """One range of a buffer that is used, and the last accesses that a later one of it must be ordered after.

    `writes` are those that share memory with it, by the cell they are of, `reads` those of just this range, by lane.
    An access after a write is after everything before that write: a write replaces the accesses it covers.
    `overlapping` are the cells that share memory with this one, itself too, and whether this one covers them.
    """

    __slots__ = ("overlapping", "reads", "writes")

    def __init__(self) -> None:
        self.writes: dict[_Cell, _Use] = {}
        self.reads: dict[int, _Use] = {}
        self.overlapping: list[tuple[_Cell, bool]] = []


class RaceDetector:
    """A watcher of a machine; `race` is the first race, `num_accesses` the number of accesses judged.

    The time of a lane is the number of its records: what lies between two of them is known together or not at all.
    """

    def __init__(self, lanes: Sequence[str]) -> None:
        self.race: MissingOrder | None = None
        self.num_accesses = 0
        self._names = (*lanes, HOST)
        # The vector clock of each lane, less the host's: that is before all that the lane is launched with.
        self._clocks = [[0] * len(self._names) for _ in self._names]
        for own, clock in enumerate(self._clocks):
            clock[own] = 1
        self._host, self._host_clock = len(lanes), self._clocks[-1]

    def launched(self, lane: int, op: str, accesses: Sequence[tuple[Span, Mode]], step: int) -> None:
        """Judge the accesses of an op, or of the host, which are after everything the host has done and waited for."""
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
        """Keep the lane's clock at the record, and advance its own time.

        A clock that includes the record's time includes the record's clock. The host's clock is left out: all that a
        lane is launched with later is after that, and after more.
        """
        clock = self._clocks[record.lane]
        record.clock = tuple(clock)
        clock[record.lane] += 1

    def waited(self, lane: int, record: EventRecord) -> None:
        clock, of = self._clocks[lane], record.lane
        if clock[of] < record.clock[of]:
            # Few of them are newer: a loop is faster than a list.
            for other, time in enumerate(record.clock):
                if clock[other] < time:
                    clock[other] = time

    def synchronized(self, record: EventRecord) -> None:
        self.waited(self._host, record)

    def touched(self, span: Span, mode: Mode, step: int, written_in: int | None) -> None:
        """Judge an access of the host, and whether the last write there is still the expected step's."""
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
    """Judge of the order of accesses; `first` returns the first race of the run."""

    planes = (RACES,)

    def __init__(self, first: Callable[[], MissingOrder | None]) -> None:
        self.first = first

    @classmethod
    def of(cls, case: Case) -> "Races | None":
        """Return the judge of a run whose memory accesses are watched."""
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
    """Return the cell of a span's range, and keep it with the span; link a new one with those it overlaps."""
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
                # A write that replaced the cell's own is that of a cell around it.
                if other in other.writes:
                    cell.writes[other] = other.writes[other]
    span.watched = cell
    return cell

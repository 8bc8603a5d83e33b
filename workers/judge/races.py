"""Race detector: find unordered accesses to the same memory with vector clocks, whatever the timing of the run.

Verifies: every use of memory that several lanes or the host may reach, by (buffer, range), against the order given by
lane program order, event records and waits.
Does not verify: memory that is reached by neither a device op nor `Machine.host`.
Clocks are taken when an op is enqueued, so one run stands for every schedule of the same trace.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from workers.lanes.lane import Buffer, Mode, Record, Span

# One access: lane (0 is the host), local time, what did it, step.
Access: TypeAlias = tuple[int, int, str, int]
Range: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Race:
    """Two accesses of the same memory, at least one a write, that nothing orders."""

    buffer: str
    step: int
    first: str
    second: str

    def __str__(self) -> str:
        return f"nothing orders {self.first} before {self.second} (both use {self.buffer})"


class _Accesses:
    """The last accesses of a buffer that a later one must be ordered after, by range.

    Of a range a lane `reads` nothing was written since; of one whose reads are `overwritten` a part was.
    """

    __slots__ = ("overwritten", "reads", "writes")

    def __init__(self) -> None:
        self.writes: dict[Range, Access] = {}
        self.reads: dict[Range, dict[int, Access]] = {}
        self.overwritten: dict[Range, dict[int, Access]] = {}


class RaceDetector:
    """A watcher of a machine; `race` is the first race, `num_accesses` the number of accesses judged.

    The time of a lane is the number of its records: what lies between two of them is known together or not at all.
    """

    def __init__(self, lanes: Sequence[str]) -> None:
        self.race: Race | None = None
        self.num_accesses = 0
        self._names = ("host", *lanes)
        # What each lane knows of the others besides what the host knows: that comes before all it is launched with.
        self._clocks = [[0] * len(self._names) for _ in self._names]
        for own, clock in enumerate(self._clocks):
            clock[own] = 1
        self._host = self._clocks[0]

    def launched(self, lane: int, op: str, accesses: Sequence[tuple[Span, Mode]], step: int) -> None:
        """Judge the accesses of an op; it happens after everything the host has done and seen."""
        reader = lane + 1
        clock = self._clocks[reader]
        access = reader, clock[reader], op, step
        self.num_accesses += len(accesses)
        for span, mode in accesses:
            if mode != "in":
                self._write(span, clock, access, mode)
                continue
            known = span.watched or _accesses_of(span)
            readers = known.reads.get(span.key)
            if readers is not None and reader in readers:
                # Judged before, and nobody has written since: only the last read is another.
                readers[reader] = access
            else:
                self._read(span, clock, access)

    def recorded(self, record: Record) -> None:
        """Keep what the lane knows at the record, and begin another time there.

        Whoever knows of the time of a record knows all that the record knows. What the host knows is left out: whatever
        a lane is launched with later comes after that, and after more.
        """
        own = record.lane + 1
        clock = self._clocks[own]
        record.clock = tuple(clock)
        clock[own] += 1

    def waited(self, lane: int, record: Record) -> None:
        """Order what follows on the lane after the record."""
        clock, of = self._clocks[lane + 1], record.lane + 1
        if clock[of] < record.clock[of]:
            clock[:] = map(max, clock, record.clock)

    def synchronized(self, record: Record) -> None:
        """Order what follows on the host after the record."""
        clock, of = self._host, record.lane + 1
        if clock[of] < record.clock[of]:
            clock[:] = map(max, clock, record.clock)

    def touched(self, span: Span, mode: Mode, step: int, written_in: int | None) -> None:
        """Judge an access of the host, and whether what it expects there is still the last thing written."""
        access = 0, 1, "access", step
        self.num_accesses += 1
        if mode == "in":
            self._read(span, self._host, access)
        else:
            self._write(span, self._host, access, mode)
        if written_in is not None:
            start, stop = span.key
            writes = span.buffer.accesses.writes.items()
            over = [write for (low, high), write in writes if low < stop and start < high]
            if over and over[-1][3] != written_in:
                self._report(span.buffer, over[-1], access, f"write over step {written_in}", mode)

    def _read(self, span: Span, clock: list[int], access: Access) -> None:
        """Hold a read against the writes it overlaps, and keep it."""
        key, host, known = span.key, self._host, span.watched or _accesses_of(span)
        for at, write in known.writes.items():
            if clock[write[0]] < write[1] and host[write[0]] < write[1] and at[0] < key[1] and key[0] < at[1]:
                self._report(span.buffer, write, access, "write", "in")
        readers = known.reads.get(key)
        if readers is None:
            known.reads[key] = {access[0]: access}
        else:
            readers[access[0]] = access

    def _write(self, span: Span, clock: list[int], access: Access, mode: Mode) -> None:
        """Hold a write against the accesses it overlaps, forget those it covers, and keep it."""
        key, host, known = span.key, self._host, span.watched or _accesses_of(span)
        writes = known.writes
        for at, write in writes.items():
            if clock[write[0]] < write[1] and host[write[0]] < write[1] and at[0] < key[1] and key[0] < at[1]:
                self._report(span.buffer, write, access, "write", mode)
        ended = (*known.overwritten.items(), *known.reads.items()) if known.overwritten else tuple(known.reads.items())
        for at, readers in ended:
            if at != key and (at[0] >= key[1] or key[0] >= at[1]):
                continue
            for read in readers.values():
                if clock[read[0]] < read[1] and host[read[0]] < read[1]:
                    self._report(span.buffer, read, access, "read", mode)
            known.reads.pop(at, None)
            if key[0] <= at[0] and at[1] <= key[1]:
                known.overwritten.pop(at, None)
            else:
                known.overwritten[at] = known.overwritten.get(at, {}) | readers
        if len(writes) > 1 or key not in writes:
            # The newest write comes last.
            for low, high in [at for at in writes if key[0] <= at[0] and at[1] <= key[1]]:
                del writes[low, high]
        writes[key] = access
        if mode == "inout":
            known.reads[key] = {access[0]: access}

    def _report(self, buffer: Buffer, earlier: Access, access: Access, how: str, mode: Mode) -> None:
        if self.race is not None:
            return
        first = f"the {how} by {self._names[earlier[0]]}:{earlier[2]}@{earlier[3]}"
        second = f"the {'read' if mode == 'in' else 'write'} by {self._names[access[0]]}:{access[2]}@{access[3]}"
        self.race = Race(buffer.name, access[3], first, second)


def _accesses_of(span: Span) -> _Accesses:
    """Return the accesses of a span's buffer, and keep them with the span."""
    buffer = span.buffer
    if buffer.accesses is None:
        buffer.accesses = _Accesses()
    known: _Accesses = buffer.accesses
    span.watched = known
    return known

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
    """The last accesses of a buffer that a later one must be ordered after."""

    __slots__ = ("reads", "version", "writes")

    def __init__(self) -> None:
        self.version = 0
        self.writes: dict[Range, Access] = {}
        self.reads: dict[Range, dict[int, Access]] = {}


@dataclass(slots=True)
class _Read:
    """The last read of a span: by which lane, at which version of the buffer; `readers` has the last one of each."""

    lane: int
    version: int
    of: _Accesses
    readers: dict[int, Access]


class RaceDetector:
    """A watcher of a machine; `race` is the first race, `num_accesses` the number of accesses judged."""

    def __init__(self, lanes: Sequence[str]) -> None:
        self.race: Race | None = None
        self.num_accesses = 0
        self._names = ("host", *lanes)
        # What each lane knows of the others besides what the host knows: that comes before all it is launched with.
        self._clocks = [[0] * len(self._names) for _ in self._names]
        self._host = self._clocks[0]

    def launched(self, lane: int, op: str, accesses: Sequence[tuple[Span, Mode]], step: int) -> None:
        """Judge the accesses of an op; it happens after everything the host has done and seen."""
        reader = lane + 1
        clock = self._clocks[reader]
        time = clock[reader] = clock[reader] + 1
        access = reader, time, op, step
        self.num_accesses += len(accesses)
        for span, mode in accesses:
            if mode == "in":
                seen = span.watched
                if seen is not None and seen.lane == reader and seen.version == seen.of.version:
                    # Judged before, and nobody has written since: only the last read is another.
                    seen.readers[reader] = access
                    continue
            self._judge(span, mode, clock, access)

    def recorded(self, record: Record) -> None:
        """Keep what the lane knows at the record.

        A record has a time of its own on its lane: whoever knows of that knows all that the record knows. What the host
        knows is left out: whatever a lane is launched with later comes after that, and after more.
        """
        clock = self._clocks[record.lane + 1]
        clock[record.lane + 1] += 1
        record.clock = tuple(clock)

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
        clock = self._host
        clock[0] += 1
        self.num_accesses += 1
        access = 0, clock[0], "access", step
        self._judge(span, mode, clock, access)
        if written_in is not None:
            writes = span.buffer.accesses.writes.items()
            over = [write for (low, high), write in writes if low < span.key[1] and span.key[0] < high]
            if over and over[-1][3] != written_in:
                self._report(span.buffer, over[-1], access, f"write over step {written_in}", mode)

    def _judge(self, span: Span, mode: Mode, clock: list[int], access: Access) -> None:
        buffer, key, host = span.buffer, span.key, self._host
        known: _Accesses | None = buffer.accesses
        if known is None:
            known = buffer.accesses = _Accesses()
        for (low, high), write in known.writes.items():
            if clock[write[0]] < write[1] > host[write[0]] and low < key[1] and key[0] < high:
                self._report(buffer, write, access, "write", mode)
        if mode == "in":
            readers = known.reads.get(key)
            if readers is None:
                readers = known.reads[key] = {}
            readers[access[0]] = access
            seen: _Read | None = span.watched
            if seen is None:
                span.watched = _Read(access[0], known.version, known, readers)
            else:
                seen.lane, seen.version, seen.readers = access[0], known.version, readers
            return
        known.version += 1
        if known.reads:
            self._judge_readers(known, buffer, key, mode, clock, access)
        writes = known.writes
        if len(writes) > 1 or key not in writes:
            # The newest write comes last.
            start, stop = key
            for low, high in [each for each in writes if start <= each[0] and each[1] <= stop]:
                del writes[low, high]
        writes[key] = access
        if mode == "inout":
            known.reads[key] = {access[0]: access}

    def _judge_readers(
        self, known: _Accesses, buffer: Buffer, key: Range, mode: Mode, clock: list[int], access: Access
    ) -> None:
        """Hold a write against the reads it overlaps, and forget those it covers."""
        start, stop = key
        for (low, high), readers in [*known.reads.items()]:
            if low < stop and start < high:
                for read in readers.values():
                    if clock[read[0]] < read[1] > self._host[read[0]]:
                        self._report(buffer, read, access, "read", mode)
                if start <= low and high <= stop:
                    del known.reads[low, high]

    def _report(self, buffer: Buffer, earlier: Access, access: Access, how: str, mode: Mode) -> None:
        if self.race is not None:
            return
        first = f"the {how} by {self._names[earlier[0]]}:{earlier[2]}@{earlier[3]}"
        second = f"the {'read' if mode == 'in' else 'write'} by {self._names[access[0]]}:{access[2]}@{access[3]}"
        self.race = Race(buffer.name, access[3], first, second)

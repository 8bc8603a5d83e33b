"""Records a run as a timeline: ops of lanes, host actions, and events that order them.

Verifies: nothing; it records every call and forwards it to the watcher that it wraps.
The clock counts actions: an op that runs, a host access, or the end of a host wait.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from workers.lanes.lane import EventRecord, LaneEvent, Mode, Span, Watcher

HOST = 0


class Use(NamedTuple):
    """Memory that a task accesses: a buffer, and the name or range of a part of it.

    `part` is empty for the whole buffer.
    """

    buffer: str
    part: str = ""

    def __str__(self) -> str:
        return f"{self.buffer}:{self.part}" if self.part else self.buffer


@dataclass(slots=True)
class Task:
    """One op of a lane, or one action of the host (lane 0).

    `ran` stays None if the op never ran.

    `enqueued` is the time of the launch.
    """

    index: int
    lane: int
    op: str
    step: int
    enqueued: int
    ran: int | None = None
    reads: tuple[Use, ...] = ()
    writes: tuple[Use, ...] = ()

    @property
    def buffers(self) -> set[str]:
        """Names of the buffers that the task uses."""
        return {use.buffer for use in (*self.reads, *self.writes)}


@dataclass(frozen=True, slots=True)
class Flow:
    """Order by an event: task `after` waits for an event recorded after task `before`."""

    before: int
    after: int
    event: str


@dataclass(frozen=True, slots=True)
class UnorderedTasks:
    """A race: two tasks, by index, that use the same memory with no order between them."""

    first: int
    second: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """Tasks of a run by index, the orders by events, and the first race, if any."""

    lanes: tuple[str, ...]
    tasks: tuple[Task, ...]
    flows: tuple[Flow, ...]
    missing: UnorderedTasks | None = None


@dataclass(slots=True)
class TimelineRecorder:
    """Watcher that records all notifications, and forwards them to another watcher."""

    watcher: Watcher
    tasks: list[Task] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    _events: list[LaneEvent] = field(default_factory=list)
    _now: int = 0
    _step: int = 0
    _queued: dict[int, list[Task]] = field(default_factory=dict)
    _newest: dict[int, Task] = field(default_factory=dict)
    _task_before: dict[int, Task] = field(default_factory=dict)
    _records: list[EventRecord] = field(default_factory=list)
    _waits: dict[int, list[tuple[Task, str]]] = field(default_factory=dict)

    def made(self, event: LaneEvent) -> None:
        self._events.append(event)

    def launched(self, lane: int, op: str, accesses: Sequence[tuple[Span, Mode]], step: int) -> None:
        """Add a task for a launched op, ordered after the waits before it on its lane."""
        self.watcher.launched(lane, op, accesses, step)
        task = self._task(lane + 1, op, step, accesses)
        self._queued.setdefault(lane, []).append(task)
        self._newest[lane] = task
        for before, event in self._waits.pop(lane, ()):
            self.flows.append(Flow(before.index, task.index, event))

    def ran(self, lane: int, op: str, uses: Sequence[tuple[Span, Mode]], step: int) -> None:
        """Set when an op ran; add its task if the launch was not reported.

        Launches of ops that use only memory of their own lane are not reported.
        """
        queued = self._queued.get(lane, [])
        task = next((task for task in queued if (task.op, task.step) == (op, step)), None)
        if task is None:
            task = self._task(lane + 1, op, step, uses)
        else:
            queued.remove(task)
            task.reads, task.writes = _uses(uses)
        task.ran = self._tick()

    def recorded(self, record: EventRecord) -> None:
        """Store which task was the last one launched before an event record."""
        self.watcher.recorded(record)
        task = self._newest.get(record.lane)
        if task is not None:
            # A reference keeps the record alive, so that its id stays unique.
            self._records.append(record)
            self._task_before[id(record)] = task

    def waited(self, lane: int, record: EventRecord) -> None:
        """Store that the next op on a lane waits for an event record."""
        self.watcher.waited(lane, record)
        before = self._task_before.get(id(record))
        if before is not None:
            self._waits.setdefault(lane, []).append((before, self._name_of(record)))

    def synchronized(self, record: EventRecord) -> None:
        self.watcher.synchronized(record)
        name = self._name_of(record)
        task = self._task(HOST, f"wait {name}", self._step, ())
        task.ran = self._tick()
        before = self._task_before.get(id(record))
        if before is not None:
            self.flows.append(Flow(before.index, task.index, name))

    def touched(self, span: Span, mode: Mode, step: int, written_in: int | None) -> None:
        self.watcher.touched(span, mode, step, written_in)
        task = self._task(HOST, "read" if mode == "in" else "write", step, [(span, mode)])
        task.ran = self._tick()

    def timeline(self, lanes: Sequence[str], missing: UnorderedTasks | None) -> Timeline:
        """Return the timeline recorded so far."""
        return Timeline(("host", *lanes), tuple(self.tasks), tuple(self.flows), missing)

    def _task(self, lane: int, op: str, step: int, uses: Sequence[tuple[Span, Mode]]) -> Task:
        task = Task(len(self.tasks), lane, op, step, self._now, None, *_uses(uses))
        self.tasks.append(task)
        self._step = max(self._step, step)
        return task

    def _tick(self) -> int:
        self._now += 1
        return self._now

    def _name_of(self, record: EventRecord) -> str:
        """Return the name of the event whose newest record is `record`."""
        return next((event.name for event in self._events if event.record_newest is record), "event")


def _uses(uses: Sequence[tuple[Span, Mode]]) -> tuple[tuple[Use, ...], tuple[Use, ...]]:
    """Return the memory that spans read, and the memory that they write, without duplicates."""
    reads = dict.fromkeys(_use(span) for span, mode in uses if mode in ("in", "inout"))
    writes = dict.fromkeys(_use(span) for span, mode in uses if mode in ("out", "inout"))
    return tuple(reads), tuple(writes)


def _use(span: Span) -> Use:
    buffer, (start, stop) = span.buffer, span.key
    if span.name not in (buffer.name, buffer.all.name):
        return Use(buffer.name, span.name)
    return Use(buffer.name, "" if span.key == buffer.all.key else f"{start}-{stop}")

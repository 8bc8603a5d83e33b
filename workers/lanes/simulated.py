"""The lanes of one simulated machine: FIFO queues whose ops run when the policy says so.

The host is the running Python thread. Every call of the seam is a decision point, before it takes effect.
A copy reads its source when it runs. Events are CUDA's: re-recordable, and a wait takes the record that is newest
when the wait is enqueued; waiting for an event that was never recorded returns at once.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from workers.lanes.lane import Buffer, Deadlock, Function, Record, Span, Watcher, op_of
from workers.lanes.policies import Eager, Policy
from workers.lanes.prepared import Launch, Prepared, Probe

_PREPARED_MAX = 4096


@dataclass(frozen=True, slots=True)
class Held:
    """An op that does not run before something named has passed."""

    op: tuple[str, int]
    until: tuple[str, int]


class OpFailed(Exception):
    """A device op raised; the cause is chained, the message says which op of which step."""


class Lane:
    """One in-order actor of the device."""

    def __init__(self, machine: "Machine", name: str, index: int) -> None:
        self.name = name
        self.index = index
        self._machine = machine
        self._prepared: dict[tuple[Function, tuple[Span | int, ...]], Prepared] = {}
        self.queue: deque[Launch | Record | Probe | tuple[Record]] = deque()

    def launch(self, function: Function, *arguments: Span | int) -> None:
        """Enqueue a device op on spans of buffers and plain integers.

        Raises:
            TypeError: an argument is neither, or is not what the op's signature says.
        """
        machine = self._machine
        prepared = self._prepared.get((function, arguments)) or self._prepare(function, arguments)
        if machine.pending:
            machine.decide(prepared.op.name)
        if machine.watcher is not None and prepared.accesses:
            machine.watcher.launched(self.index, prepared.op.name, prepared.accesses, machine.step)
        if machine.prompt and not self.queue:
            self._execute(prepared, machine.step)
        else:
            self.queue.append(Launch(prepared, machine.step))
            machine.pending += 1

    def _prepare(self, function: Function, arguments: tuple[Span | int, ...]) -> Prepared:
        if len(self._prepared) > _PREPARED_MAX:
            self._prepared.clear()
        prepared = self._prepared[function, arguments] = Prepared(self.name, op_of(function), arguments)
        return prepared

    def probe(self, function: Callable[..., None], *spans: Span) -> None:
        """Call `function` on read-only views as part of the op enqueued last, whose effects it sees."""
        views = [span._readable for span in spans]
        if not self.queue:
            function(*views)
            return
        probe, tail = Probe(function, tuple(views)), self.queue[-1]
        if type(tail) is Launch:
            tail.probes.append(probe)
        else:
            self.queue.append(probe)
            self._machine.pending += 1

    def wait(self, event: "Event") -> None:
        """Let nothing enqueued from here on run before the event's newest record is done."""
        machine = self._machine
        if machine.pending:
            machine.decide("wait " + event.name)
        record = event.record_newest
        if record is None or (self.name, event.name) in machine.without:
            return
        machine.seen_waits.add((self.name, event.name))
        if machine.watcher is not None:
            machine.watcher.waited(self.index, record)
        if self.queue or not record.done:
            self.queue.append((record,))
            machine.pending += 1

    def ready(self) -> bool:
        """Tell whether the op at the head may run now; passes records and satisfied waits."""
        queue = self.queue
        while queue:
            head = queue[0]
            if type(head) is Launch:
                held = self._machine.held
                return not held or (head.prepared.op.name, head.step) not in held
            if type(head) is Record:
                head.done = True
            elif type(head) is Probe:
                head.function(*head.views)
            elif not head[0].done:  # type: ignore[index]
                return False
            queue.popleft()
            self._machine.pending -= 1
        return False

    def run(self) -> None:
        """Run the op at the head.

        Raises:
            OpFailed: the op raised.
        """
        launch = self.queue.popleft()
        assert type(launch) is Launch
        self._machine.pending -= 1
        self._execute(launch.prepared, launch.step)
        for probe in launch.probes:
            probe.function(*probe.views)
        if self._machine.held:
            self._machine.passed((launch.prepared.op.name, launch.step))

    def _execute(self, prepared: Prepared, step: int) -> None:
        machine, op = self._machine, prepared.op
        if step > machine.step_begun:
            machine.step_begun = step
        try:
            op.function(*prepared.views)
        except Exception as error:
            raise OpFailed(f"op {op.name} of step {step}: {type(error).__name__}: {error}") from error
        if machine.blame:
            label = f"{self.name}:{op.name}@{step}"
            for buffer in prepared.outputs:
                buffer.writers = (label, *buffer.writers[:1])

    def head(self) -> tuple[str, int]:
        """Return name and step of the op at the head."""
        launch = self.queue[0]
        assert type(launch) is Launch
        return launch.prepared.op.name, launch.step

    def blocking(self) -> Record | None:
        """Return the record that the lane waits for, if it waits."""
        head = self.queue[0] if self.queue else None
        return head[0] if type(head) is tuple else None

    def append(self, record: Record) -> None:
        """Enqueue the record of an event; on an empty lane it is done at once."""
        if self.queue:
            self.queue.append(record)
            self._machine.pending += 1
        else:
            record.done = True


class Event:
    """A CUDA-like event."""

    def __init__(self, machine: "Machine", name: str) -> None:
        self.name = name
        self.record_newest: Record | None = None
        self._machine = machine

    def record(self, lane: Lane) -> None:
        """Mark the place in a lane that a later wait waits for."""
        machine = self._machine
        if machine.pending:
            machine.decide("record " + self.name)
        if ("record", self.name) in machine.without:
            return
        machine.seen_waits.add(("record", self.name))
        record = Record(lane.index, machine.step)
        if machine.watcher is not None:
            machine.watcher.recorded(record)
        lane.append(record)
        self.record_newest = record

    def synchronize(self) -> None:
        """Block the host until the newest record is done.

        Raises:
            Deadlock: no lane can advance.
        """
        machine = self._machine
        record = self.record_newest
        if record is None or ("host", self.name) in machine.without:
            machine.decide("synchronize " + self.name)
            return
        machine.seen_waits.add(("host", self.name))
        if machine.pending or not record.done:
            machine.host_label = "synchronize " + self.name
            machine.policy.advance(machine, record)
        assert record.done
        if machine.watcher is not None:
            machine.watcher.synchronized(record)


class HostView:
    """An access of the host to pinned memory: it happens when the `with` is entered."""

    __slots__ = ("_machine", "_span", "_writes", "_written_in")

    def __init__(self, machine: "Machine", span: Span, writes: bool, written_in: int | None) -> None:
        self._machine = machine
        self._span = span
        self._writes = writes
        self._written_in = written_in

    def __enter__(self) -> NDArray[Any]:
        machine, span = self._machine, self._span
        if machine.pending:
            machine.decide(("write " if self._writes else "read ") + span.buffer.name)
        if machine.watcher is not None:
            machine.watcher.touched(span, "out" if self._writes else "in", machine.step, self._written_in)
        if self._writes and machine.blame:
            label = f"host:write {span.buffer.name}@{machine.step}"
            span.buffer.writers = (label, *span.buffer.writers[:1])
        view: NDArray[Any] = span._writable if self._writes else span._readable
        return view

    def __exit__(self, *error: object) -> None:
        return None


class Machine:
    """Lanes, events and buffers of one engine, advanced by one policy.

    `without` removes waits, records and synchronisations, by (lane or "host" or "record", event name): for tests of
    the race detector. `seen_waits` lists those that took effect. `as_tensor` makes a tensor of an array, without a
    copy, for ops that take tensors.
    """

    def __init__(
        self,
        lanes: Sequence[str],
        policy: Policy,
        watcher: Watcher | None = None,
        held: Sequence[Held] = (),
        without: frozenset[tuple[str, str]] = frozenset(),
        blame: bool = False,
        as_tensor: Callable[[NDArray[Any]], Any] | None = None,
    ) -> None:
        self.lanes: Sequence[Lane] = [self._lane(name, index) for index, name in enumerate(lanes)]
        self.policy = policy
        self.watcher = watcher
        self.held: dict[tuple[str, int], set[tuple[str, int]]] = {}
        for hold in held:
            self.held.setdefault(hold.op, set()).add(hold.until)
        self.without = without
        self.blame = blame
        self.buffers: dict[str, Buffer] = {}
        self.step = 0
        self.step_begun = -1
        self.pending = 0
        # Eager with nothing held back runs every op before the next call of the host: it may as well run at once.
        self.prompt = type(policy) is Eager and not self.held
        self.host_label = ""
        self.seen_waits: set[tuple[str, str]] = set()
        self._as_tensor = as_tensor

    def _lane(self, name: str, index: int) -> Lane:
        return Lane(self, name, index)

    def lane(self, name: str) -> Lane:
        """Return the lane of this name."""
        return next(lane for lane in self.lanes if lane.name == name)

    def event(self, name: str) -> Event:
        """Make an event; the name labels it in reports."""
        return Event(self, name)

    def buffer(
        self, name: str, data: NDArray[Any], pinned: bool = False, lane: str | None = None, whole: bool = False
    ) -> Buffer:
        """Give memory to the machine; nobody else may keep a reference to it.

        With `lane`, no op of another lane may use it: its accesses are ordered by that lane alone. With `whole`, no op
        may write a part of it, so that every write conflicts with every read.
        """
        assert name not in self.buffers, f"buffer {name} exists"
        assert not (pinned and (lane or whole)), f"buffer {name}: pinned memory is the host's too"
        self.buffers[name] = made = self._buffer(name, data, pinned, lane, whole)
        return made

    def _buffer(self, name: str, data: NDArray[Any], pinned: bool, lane: str | None, whole: bool) -> Buffer:
        tensor = None if self._as_tensor is None else self._as_tensor(data)
        return Buffer(name, data, pinned, lane, whole, tensor)

    def point(self, name: str) -> None:
        """Pass a named point of the host; what is held until then is released."""
        self.decide(name)
        if self.held:
            self.passed((name, self.step))

    def host(self, span: Span, mode: str, written_in: int | None = None) -> "HostView":
        """Give the host a view of pinned memory, for reading ("r") or writing ("w"); use it in a `with`.

        A reader may say in which step the values it expects were written.

        Raises:
            PermissionError: the buffer is device memory.
        """
        if not span.buffer.pinned:
            raise PermissionError(f"{span.buffer.name} is device memory; the host cannot reach it")
        return HostView(self, span, mode == "w", written_in)

    def decide(self, label: str) -> None:
        """Let the policy advance the device before the host's call `label` takes effect."""
        if self.pending:
            self.host_label = label
            self.policy.advance(self, None)

    def drain(self) -> None:
        """Run everything that is still enqueued.

        Raises:
            Deadlock: something can never run.
        """
        self.held.clear()
        while self.pending:
            able = self.able()
            for lane in able:
                lane.run()
            if not able and self.pending:
                raise Deadlock(self._wait_graph())

    def able(self) -> list[Lane]:
        """Return the lanes whose head op may run now, once every record that can be passed has been."""
        while True:
            pending = self.pending
            lanes = [lane for lane in self.lanes if lane.ready()]
            if self.pending == pending:
                return lanes

    def passed(self, label: tuple[str, int]) -> None:
        """Release what is held until `label`."""
        if self.held:
            for until in self.held.values():
                until.discard(label)
            self.held = {op: until for op, until in self.held.items() if until}

    def stuck(self, record: Record) -> None:
        """Release everything that is held back, or report that nothing can advance.

        Raises:
            Deadlock: nothing is held and no lane can advance.
        """
        if self.held:
            self.held = {}
            return
        raise Deadlock(f"the host waits for {self.lanes[record.lane].name}; " + self._wait_graph())

    def _wait_graph(self) -> str:
        waits = []
        for lane in self.lanes:
            record = lane.blocking()
            if record is not None:
                waits.append(f"{lane.name} waits for {self.lanes[record.lane].name} of step {record.step}")
        return "; ".join(waits) or "no lane has anything to do"

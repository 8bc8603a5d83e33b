"""Simulated machine: lanes are queues in memory, and a policy decides when their ops run.

The host is the running Python thread. The policy is asked before every host call takes effect.
A copy reads its source when it runs. Events are CUDA's: an event may be recorded again, and a wait uses the record that
is newest when the wait is enqueued; waiting for an event that was never recorded returns at once.
"""

from collections import deque
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from numpy.typing import NDArray

from workers.lanes.base import BaseEvent, BaseLane, BaseMachine, HeldOp, OpFailed
from workers.lanes.lane import A, Buffer, Deadlock, EventRecord, Lane, LaneEvent, Observer, Span, Watcher
from workers.lanes.policies import Eager, Policy
from workers.lanes.prepared import Capture, Launch, PreparedOp

_READABLE = attrgetter("_readable")


class SimulatedLane(BaseLane):
    """One queue of device ops that run in order."""

    def __init__(self, machine: "SimulatedMachine", name: str, index: int) -> None:
        super().__init__(name, index)
        self._machine = machine
        self.queue: deque[Launch | EventRecord | Capture | tuple[EventRecord]] = deque()
        # The record for which the lane was last seen waiting; the lane is not ready before this record is done.
        self.awaited = EventRecord(index, step=0, done=True)

    def launch(self, op: Callable[[A], None], arguments: A) -> None:
        machine = self._machine
        prepared = self._prepared.get(arguments)
        if prepared is None or prepared.function is not op:
            prepared = self._prepare(op, arguments)
        if machine.pending:
            machine.decide(prepared.op.name)
        step, accesses, watcher = machine.step, prepared.accesses, machine.watcher
        if accesses and watcher is not None:
            watcher.launched(self.index, prepared.op.name, accesses, step)
        if machine.runs_at_launch and not self.queue:
            self._execute(prepared, step)
            return
        queue = self.queue
        if not queue:
            machine.moved = True
        queue.append(Launch(prepared, step))
        machine.pending += 1

    def capture(self, function: Callable[..., None], *spans: Span) -> None:
        views = tuple(map(_READABLE, spans))
        if not self.queue:
            function(*views)
            return
        capture, tail = Capture(function, views), self.queue[-1]
        if type(tail) is Launch:
            tail.captures.append(capture)
        else:
            self.queue.append(capture)
            self._machine.pending += 1

    def wait(self, event: LaneEvent) -> None:
        machine = self._machine
        if machine.pending:
            machine.decide("wait " + event.name)
        assert isinstance(event, SimulatedEvent)
        record, label = event.record_newest, (self.name, event.name)
        if record is None or (machine.without and label in machine.without):
            return
        machine.seen_waits.add(label)
        if machine.watcher is not None:
            machine.watcher.waited(self.index, record)
        if self.queue or not record.done:
            self.queue.append((record,))
            machine.pending += 1

    def ready(self) -> bool:
        """Return whether the first op of the queue may run now.

        Removes records, captures and finished waits before it.
        """
        queue, machine = self.queue, self._machine
        while queue:
            head = queue[0]
            if type(head) is Launch:
                return not machine.held or (head.prepared.op.name, head.step) not in machine.held
            if type(head) is tuple:
                if not head[0].done:
                    self.awaited = head[0]
                    return False
            elif type(head) is EventRecord:
                head.done = True
            else:
                assert type(head) is Capture
                head.function(*head.views)
            queue.popleft()
            machine.pending -= 1
            machine.moved = True
        return False

    def run(self) -> None:
        """Run the first op of the queue.

        Raises:
            OpFailed: the op raised an exception.
        """
        machine, launch = self._machine, self.queue.popleft()
        assert type(launch) is Launch
        machine.pending -= 1
        machine.moved = True
        self._execute(launch.prepared, launch.step)
        for capture in launch.captures:
            capture.function(*capture.views)
        if machine.held:
            machine.passed((launch.prepared.op.name, launch.step))

    def _execute(self, prepared: PreparedOp, step: int) -> None:
        machine, function = self._machine, prepared.function
        if step > machine.step_begun:
            machine.step_begun = step
        try:
            function(prepared.arguments)
        except Exception as error:
            op = prepared.op
            if machine.observer is not None:
                machine.observer.ran(self.index, op.name, prepared.uses(), step)
            raise OpFailed(f"op {op.name} of step {step}: {type(error).__name__}: {error}") from error
        if machine.blame:
            name = prepared.op.name
            for buffer in prepared.outputs:
                buffer.writers = ((self.name, name, step), *buffer.writers[:1])
            if machine.observer is not None:
                machine.observer.ran(self.index, name, prepared.uses(), step)

    def head(self) -> tuple[str, int]:
        launch = self.queue[0]
        assert type(launch) is Launch
        return launch.prepared.op.name, launch.step

    def blocking(self) -> EventRecord | None:
        head = self.queue[0] if self.queue else None
        return head[0] if type(head) is tuple else None

    def append(self, record: EventRecord) -> None:
        """Enqueue an event record; if the queue is empty, it is done at once."""
        if self.queue:
            self.queue.append(record)
            self._machine.pending += 1
        else:
            record.done = True


class SimulatedEvent(BaseEvent):
    """Event of a simulated machine, with the semantics of CUDA."""

    def __init__(self, machine: "SimulatedMachine", name: str) -> None:
        super().__init__(name)
        self._machine = machine
        self._recording, self._synchronizing = ("record", name), ("host", name)

    def record(self, lane: Lane) -> None:
        machine = self._machine
        if machine.pending:
            machine.decide("record " + self.name)
        assert isinstance(lane, SimulatedLane)
        if machine.without and self._recording in machine.without:
            return
        machine.seen_waits.add(self._recording)
        record = EventRecord(lane.index, machine.step)
        if machine.watcher is not None:
            machine.watcher.recorded(record)
        lane.append(record)
        self.record_newest = record

    def synchronize(self) -> None:
        machine = self._machine
        record = self.record_newest
        if record is None or (machine.without and self._synchronizing in machine.without):
            if machine.pending:
                machine.decide("synchronize " + self.name)
            return
        machine.seen_waits.add(self._synchronizing)
        if machine.pending or not record.done:
            machine.host_label = "synchronize " + self.name
            machine.policy.advance(machine, record)
        assert record.done
        if machine.watcher is not None:
            machine.watcher.synchronized(record)


class SimulatedMachine(BaseMachine):
    """Simulated streams, events and memory of one engine; a policy decides when each op runs.

    `as_tensor` wraps an array in a tensor without a copy, for ops that take tensors. An observer replaces the watcher
    and turns `blame` on. `moved` says that other lanes may have become able to run: a queue has a new head, a record is
    done, or a held op was released.
    """

    def __init__(
        self,
        lanes: Sequence[str],
        policy: Policy,
        watcher: Watcher | None = None,
        held: Sequence[HeldOp] = (),
        *,
        without: frozenset[tuple[str, str]] = frozenset(),
        blame: bool = False,
        as_tensor: Callable[[NDArray[Any]], Any] | None = None,
        observer: Observer | None = None,
    ) -> None:
        super().__init__(policy, observer or watcher, held, without, blame or observer is not None)
        self.observer = observer
        self.lanes: Sequence[SimulatedLane] = [SimulatedLane(self, name, index) for index, name in enumerate(lanes)]
        # The policy Eager without held ops runs every op before the next host call, so ops run at their launch.
        self.runs_at_launch = type(policy) is Eager and not self.held
        self.host_label = ""
        self.moved = False
        self._able: list[SimulatedLane] = []
        self._as_tensor = as_tensor

    def lane(self, name: str) -> SimulatedLane:
        return next(lane for lane in self.lanes if lane.name == name)

    def event(self, name: str) -> SimulatedEvent:
        made = SimulatedEvent(self, name)
        if self.observer is not None:
            self.observer.made(made)
        return made

    def _buffer(self, name: str, data: NDArray[Any], pinned: bool, lane: str | None, whole: bool) -> Buffer:
        tensor = None if self._as_tensor is None else self._as_tensor(data)
        return Buffer(name, data, pinned, lane, whole, tensor)

    def decide(self, label: str) -> None:
        self.host_label = label
        self.policy.advance(self, None)

    def drain(self) -> None:
        self.held, self.moved = {}, True
        while self.pending:
            able = self.able()
            for lane in able:
                lane.run()
            if not able and self.pending:
                raise Deadlock(None, self._waits())

    def close(self) -> None:
        """Break reference cycles, so that memory is freed without the garbage collector."""
        for buffer in self.buffers.values():
            buffer.close()
        self.lanes, self._able = (), []

    def able(self) -> list[SimulatedLane]:
        """Return the lanes whose first op may run now.

        Finished waits and records are dequeued first.
        """
        while self.moved:
            self.moved = False
            self._able = [lane for lane in self.lanes if lane.queue and lane.awaited.done and lane.ready()]
        return self._able

    def passed(self, label: tuple[str, int]) -> None:
        super().passed(label)
        self.moved = True

    def stuck(self, record: EventRecord) -> None:
        """Release all ops that the schedule delays, or raise if there is none.

        Raises:
            Deadlock: nothing is held and no lane can advance.
        """
        if self.held:
            self.held, self.moved = {}, True
            return
        raise Deadlock(self.lanes[record.lane].name, self._waits())

    def _waits(self) -> tuple[tuple[str, str, int], ...]:
        """Return all waits of lanes: (waiting lane, awaited lane, step of the event record)."""
        blocking = ((lane.name, lane.blocking()) for lane in self.lanes)
        return tuple((name, self.lanes[each.lane].name, each.step) for name, each in blocking if each is not None)

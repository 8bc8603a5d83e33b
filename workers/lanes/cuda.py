"""Machine on a GPU: lanes are CUDA streams; schedules become delays of streams and host.

A schedule becomes delays: on a stream, a kernel that spins for a calibrated number of cycles before an op; on the host,
a busy wait before a call. Delays change when ops run, never which results are correct.
Verifies: nothing by itself; the race detector and the judges see every call, as on the simulated machine.
Does not verify: that a delay produces the intended order. A held op gets a long delay; it does not wait for the point
that it is held until.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from time import perf_counter_ns
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from workers.lanes.base import BaseEvent, BaseLane, BaseMachine, HeldOp, OpFailed
from workers.lanes.lane import A, Buffer, EventRecord, Lane, LaneEvent, OpArguments, Span, Watcher
from workers.lanes.policies import HOST, LaneOrder, Lazy, Policy, Random
from workers.lanes.prepared import Capture, Function, PreparedOp

# Kernel launches; each can be repeated on another stream by its handle.
Launches: TypeAlias = Sequence[Callable[[int], None]]
# Typed as Any: its functions are untyped.
cuda: Any = torch.cuda

# An op is delayed longer than the host needs to enqueue the next few ops: 10 to 20 microseconds each, once bound.
LAZY_MICROSECONDS = 60
RANK_MICROSECONDS = 25
RANDOM_MICROSECONDS = 120
# Longer than a whole step takes on the host.
HELD_MICROSECONDS = 10_000
# The host makes several calls for each op.
HOST_SHARE = 4
CAPTURE_BYTES = 1 << 24
_ALIGNMENT = 16


@cache
def cycles_per_microsecond() -> float:
    """Return how many cycles of `torch.cuda._sleep` take one microsecond, measured once."""
    cycles = 2_000_000
    start, end = (cuda.Event(enable_timing=True) for _ in range(2))
    cuda._sleep(cycles)
    start.record()
    cuda._sleep(cycles)
    end.record()
    end.synchronize()
    return cycles / (1000 * float(start.elapsed_time(end)))


def lane_delay(policy: Policy, lane: str, op: str, step: int) -> int:
    """Return how many microseconds a stream busy-waits before an op, by the policy.

    It makes lanes tend to run in the policy's order.
    """
    match policy:
        case Lazy():
            return LAZY_MICROSECONDS
        case LaneOrder():
            return policy.rank[lane] * RANK_MICROSECONDS
        case Random():
            return RANDOM_MICROSECONDS - (RANDOM_MICROSECONDS * policy.urgency("lane", op, step) >> 32)
        case _:
            return 0


def host_delay(policy: Policy, label: str, step: int) -> int:
    """Return how many microseconds the host busy-waits before a call, by the policy."""
    match policy:
        case LaneOrder():
            return policy.rank[HOST] * RANK_MICROSECONDS // HOST_SHARE
        case Random():
            most = RANDOM_MICROSECONDS // HOST_SHARE
            return most - (most * policy.urgency("host", label, step) >> 32)
        case _:
            return 0


@dataclass(slots=True)
class CudaRecord(EventRecord):
    """Recorded event; once it is reached, `captures` buffer copies are complete."""

    captures: int = 0


class CudaLane(BaseLane):
    """One CUDA stream; `captures` buffer copies are complete once all its work has run."""

    def __init__(self, machine: "CudaMachine", name: str, index: int) -> None:
        super().__init__(name, index)
        self.stream = cuda.Stream()
        self.captures = 0
        self._host = machine
        self._handle: int = self.stream.cuda_stream
        # Kernel launches of an op that consists of kernels only; they are replayed without the op's Python code. Empty
        # if the op also copies memory.
        self._launches: dict[PreparedOp, Launches] = {}

    def _prepare(self, op: Function, arguments: OpArguments) -> PreparedOp:
        prepared = super()._prepare(op, arguments)
        if len(self._launches) > len(self._prepared):
            self._launches.clear()
        return prepared

    def launch(self, op: Callable[[A], None], arguments: A) -> None:
        """Enqueue an op on the stream, after the delay that the schedule asks for.

        Raises:
            OpFailed: the op could not be launched.
        """
        machine = self._host
        prepared = self._prepared.get(arguments)
        if prepared is None or prepared.op.function is not op:
            prepared = self._prepare(op, arguments)
        name, step = prepared.op.name, machine.step
        machine.decide(name)
        if machine.watcher is not None and prepared.accesses:
            machine.watcher.launched(self.index, name, prepared.accesses, step)
        delay = lane_delay(machine.policy, self.name, name, step)
        if (name, step) in machine.held:
            delay += HELD_MICROSECONDS
        launches = self._launches.get(prepared)
        if delay or not launches:
            with cuda.stream(self.stream):
                if delay:
                    cuda._sleep(int(delay * cycles_per_microsecond()))
                try:
                    if launches is None:
                        self._launches[prepared] = machine.launches_of(prepared.op.function, prepared.arguments)
                    elif not launches:
                        prepared.op.function(prepared.arguments)
                except Exception as error:
                    raise OpFailed(f"op {name} of step {step}: {type(error).__name__}: {error}") from error
        for launch in launches or ():
            launch(self._handle)
        if machine.blame:
            writer = self.name, name, step
            for buffer in prepared.outputs:
                buffer.writers = (writer, *buffer.writers[:1])

    def capture(self, function: Callable[..., None], *spans: Span) -> None:
        """Enqueue copies of `spans` (buffer ranges) to pinned memory, for `function`.

        Pass the copies to `function` once the host may read them.
        """
        with cuda.stream(self.stream):
            self.captures = self._host.capture(self, function, spans)

    def wait(self, event: LaneEvent) -> None:
        machine = self._host
        machine.decide("wait " + event.name)
        assert isinstance(event, CudaEvent)
        record = event.record_newest
        if record is None or (self.name, event.name) in machine.without:
            return
        assert isinstance(record, CudaRecord)
        machine.seen_waits.add((self.name, event.name))
        if machine.watcher is not None:
            machine.watcher.waited(self.index, record)
        self.captures = max(self.captures, record.captures)
        self.stream.wait_event(event.handle)


class CudaEvent(BaseEvent):
    """Event of CUDA that can be recorded again."""

    def __init__(self, machine: "CudaMachine", name: str) -> None:
        super().__init__(name)
        self.handle = cuda.Event()
        self._host = machine

    def record(self, lane: Lane) -> None:
        machine = self._host
        machine.decide("record " + self.name)
        if ("record", self.name) in machine.without:
            return
        assert isinstance(lane, CudaLane)
        machine.seen_waits.add(("record", self.name))
        record = CudaRecord(lane.index, machine.step, captures=lane.captures)
        if machine.watcher is not None:
            machine.watcher.recorded(record)
        self.handle.record(lane.stream)
        self.record_newest = record

    def synchronize(self) -> None:
        machine, record = self._host, self.record_newest
        machine.decide("synchronize " + self.name)
        if record is None or ("host", self.name) in machine.without:
            return
        assert isinstance(record, CudaRecord)
        machine.seen_waits.add(("host", self.name))
        self.handle.synchronize()
        record.done = True
        machine.step_begun = max(machine.step_begun, record.step)
        if machine.watcher is not None:
            machine.watcher.synchronized(record)
        machine.deliver(record.captures)


class CudaMachine(BaseMachine):
    """Streams, events and buffers of one engine, on the current CUDA device.

    `step_begun` is the newest step that the device is known to have begun. `launches_of` runs an op with its arguments
    and returns the kernel launches that it made.
    """

    def __init__(
        self,
        lanes: Sequence[str],
        policy: Policy,
        watcher: Watcher | None = None,
        held: Sequence[HeldOp] = (),
        without: frozenset[tuple[str, str]] = frozenset(),
        blame: bool = False,
        *,
        launches_of: Callable[[Function, Any], Launches],
    ) -> None:
        # Ops of an earlier engine that ended early must not write to memory that is allocated again.
        cuda.synchronize()
        super().__init__(policy, watcher, held, without, blame)
        self.lanes = [CudaLane(self, name, index) for index, name in enumerate(lanes)]
        self.launches_of = launches_of
        # The host cannot see whether the streams are empty, so each of its calls is delayed as the policy says.
        self.pending = 1
        # Copies in pinned memory, made in stream order.
        self._captures: deque[Capture] = deque()
        self._num_delivered = 0
        self._capture_tensor = torch.empty(CAPTURE_BYTES, dtype=torch.uint8, pin_memory=True)
        self._capture_bytes = self._capture_tensor.numpy()
        self._capture_end = 0
        self._capturing: CudaLane | None = None

    def lane(self, name: str) -> CudaLane:
        return next(lane for lane in self.lanes if lane.name == name)

    def event(self, name: str) -> CudaEvent:
        return CudaEvent(self, name)

    def _buffer(self, name: str, data: NDArray[Any], pinned: bool, lane: str | None, whole: bool) -> Buffer:
        if pinned:
            memory = torch.from_numpy(data).pin_memory()
            return Buffer(name, memory.numpy(), pinned, lane, whole, memory)
        memory = torch.from_numpy(data).to("cuda")
        return Buffer(name, memory, pinned, lane, whole, memory)

    def decide(self, label: str) -> None:
        """Busy-wait on the host, as long as the policy asks before this call."""
        delay = host_delay(self.policy, label, self.step)
        if delay:
            until = perf_counter_ns() + 1000 * delay
            while perf_counter_ns() < until:
                pass

    def drain(self) -> None:
        """Wait for all streams; then pass all captured values to the functions that wait for them."""
        cuda.synchronize()
        self.deliver(self._num_delivered + len(self._captures))

    def capture(self, lane: CudaLane, function: Callable[..., None], spans: Sequence[Span]) -> int:
        """Enqueue copies of buffer ranges on the current stream.

        Return the number of captures so far, this one included.

        All captures are made on one lane, so they complete in order.
        """
        self._capturing = self._capturing or lane
        assert lane is self._capturing, f"captures on {lane.name} and {self._capturing.name}; one lane is allowed"
        if self._capture_end + sum(_bytes_of(span) for span in spans) > CAPTURE_BYTES:
            lane.stream.synchronize()
            self.deliver(self._num_delivered + len(self._captures))
        copies = tuple(self._copy(span) for span in spans)
        self._captures.append(Capture(function, copies))
        return self._num_delivered + len(self._captures)

    def _copy(self, span: Span) -> NDArray[Any]:
        source, start = span.tensor, self._capture_end
        stop = start + source.numel() * source.element_size()
        assert stop <= CAPTURE_BYTES, (
            f"{span.buffer.name}: captures need {stop} bytes, the pinned buffer has {CAPTURE_BYTES}"
        )
        self._capture_tensor[start:stop].view(source.dtype).copy_(source, non_blocking=True)
        self._capture_end = -(-stop // _ALIGNMENT) * _ALIGNMENT
        dtype: Any = np.dtype(str(source.dtype).removeprefix("torch."))
        return self._capture_bytes[start:stop].view(dtype)

    def deliver(self, count: int) -> None:
        """Pass the first `count` captured values, which are complete, to their functions."""
        while self._num_delivered < count:
            capture = self._captures.popleft()
            self._num_delivered += 1
            capture.function(*capture.views)
        if not self._captures:
            self._capture_end = 0


def _bytes_of(span: Span) -> int:
    return _ALIGNMENT + int(span.tensor.numel() * span.tensor.element_size())

"""Process groups between ranks that are threads of one process.

A collective of device tensors is two tasks of each rank on a stream of the group, as NCCL's are: one reads the rank's
inputs, the other writes its outputs. Between them stands a gate, which opens once all ranks have launched their part.
So the device waits and the host goes on, except for tensors on the CPU, for which the host waits as with Gloo.
The calls of the ranks are compared: a difference of kind, size, dtype or root raises `Disagreement`.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import ReduceOp

from workers.simulated_torch import backend
from workers.simulated_torch.backend import DEVICE_NAME
from workers.simulated_torch.device import Device
from workers.simulated_torch.native import NativeClock, NativeGate, native

BACKEND = "simulated_ranks"

Tensors = list[torch.Tensor]
# Computes a rank's outputs, given its views of them and the inputs of all ranks, by rank of the group.
Combine = Callable[[Tensors, Sequence[Tensors]], None]


class Waiter(Protocol):
    """Lets other ranks run while one waits."""

    def wait(self, is_awaited: Callable[[], bool], awaited: str) -> None:
        """Let other ranks run until `is_awaited` returns true; `awaited` names it for an error."""

    def offer(self) -> None:
        """Let other ranks run at this point, if the schedule selects one of them."""

    def fail(self, error: BaseException) -> None:
        """Report an error that ends the run, even if the rank catches the exception."""


class Disagreement(RuntimeError):
    """Ranks of a group ask for different collectives."""


@dataclass(frozen=True, slots=True)
class Call:
    """One rank's call of a group: what it asks for, and the line that asks.

    `shapes` has the shape and dtype of each input, `options` the root, the operation, or the number of rows of each
    rank. Then the first size of a shape is -1.
    """

    rank: int
    group: str
    number: int
    kind: str
    shapes: tuple[tuple[tuple[int, ...], str], ...]
    options: tuple[Any, ...]
    place: str

    @property
    def asked(self) -> tuple[Any, ...]:
        """What all ranks must ask for alike."""
        return self.kind, self.shapes, self.options

    def __str__(self) -> str:
        sizes = ", ".join(f"{list(shape)} {dtype.removeprefix('torch.')}" for shape, dtype in self.shapes)
        sizes = sizes.replace("[-1", "[rows")
        options = f" with {', '.join(map(str, self.options))}" if self.options else ""
        return f"rank {self.rank} asks for {self.kind} of {sizes or 'nothing'}{options} ({self.place})"


@dataclass(slots=True)
class Meeting:
    """One collective, or one send with its receive: the calls and inputs by rank of the group.

    `ranks` are the global ranks that take part.
    """

    ranks: tuple[int, ...]
    gate: NativeGate
    calls: dict[int, Call] = field(default_factory=dict)
    inputs: dict[int, Tensors] = field(default_factory=dict)
    clocks: dict[int, NativeClock] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether all ranks have called."""
        return len(self.calls) == len(self.ranks)


class Network:
    """All groups of the ranks of this process, and their open collectives."""

    def __init__(self, device: Device, waiter: Waiter) -> None:
        self.device, self.waiter = device, waiter
        self._open: dict[tuple[Any, ...], Meeting] = {}
        native().give_way_by(self._give_way)

    def forget(self) -> None:
        """Forget all open collectives, whose ranks have ended."""
        self._open.clear()

    def unmet(self) -> list[str]:
        """Return the collectives that not all ranks have called, each with the calls that were made."""
        return [
            f"{next(iter(meeting.calls.values())).group}, call {key[-1]}: {'; '.join(map(str, meeting.calls.values()))}"
            for key, meeting in self._open.items()
        ]

    def _give_way(self) -> None:
        """Let other ranks run, because no task of the device can run; return once one of them has made progress."""
        before = _progress()
        unmet = "; ".join(self.unmet()) or "a task of another rank"
        self.waiter.wait(lambda: _progress() != before, f"the device, which waits for {unmet}")

    def lacks(self, rank: int) -> bool:
        """Whether other ranks have called a collective that this rank has not called."""
        for meeting in self._open.values():
            if rank in meeting.ranks and all(call.rank != rank for call in meeting.calls.values()):
                return True
        return False

    def meet(self, key: tuple[Any, ...], ranks: tuple[int, ...], member: int, call: Call) -> Meeting:
        """Add a rank's call to its collective, which begins with the first call.

        Raises:
            Disagreement: another rank has asked for something else.
        """
        meeting = self._open.get(key)
        if meeting is None:
            meeting = self._open[key] = Meeting(ranks, native().Gate(len(ranks)))
        for other in meeting.calls.values():
            if other.asked != call.asked:
                error = Disagreement(f"call {call.number} of group {call.group}: {other}; {call}")
                self.waiter.fail(error)
                raise error
        meeting.calls[member] = call
        if meeting.is_complete:
            del self._open[key]
        return meeting


def _progress() -> tuple[int, int]:
    """Return how many tasks have been launched and have run."""
    counts = native().counts()
    return counts["tasks"], counts["run"]


class RankWork:
    """Handle of a launched collective: to wait for it makes the current stream wait, not the host."""

    def __init__(self, event: torch.Event | None = None, kept: Sequence[torch.Tensor] = ()) -> None:
        # Like NCCL's work, it keeps the tensors until it is waited for.
        self._event, self._kept = event, kept

    def wait(self, timeout: Any = None) -> bool:
        if self._event is not None:
            backend.current_stream().wait_event(self._event)
        self._event, self._kept = None, ()
        return True

    synchronize = wait

    def is_completed(self) -> bool:
        return self._event is None or self._event.query()


# PyTorch declares several signatures of each method; Python code of it calls one of them.
_ProcessGroup: Any = dist.ProcessGroup


class RankGroup(_ProcessGroup):  # type: ignore[misc]
    """Process group of one rank; the groups of the other ranks have the same `key`.

    `ranks` are the global ranks of the members.
    """

    def __init__(self, member: int, size: int, key: str, ranks: Sequence[int], network: Network) -> None:
        super().__init__(member, size)
        self._member, self._size, self._key, self._ranks = member, size, key, tuple(ranks)
        self.network = network
        self._is_on_current_stream = False
        self._num_calls = 0
        self._num_messages: dict[tuple[int, int], int] = {}
        self._streams: dict[str, torch.Stream] = {}

    def size(self) -> int:
        return self._size

    def rank(self) -> int:
        return self._member

    def getBackendName(self) -> str:
        return BACKEND

    @property
    def pg_name(self) -> str:
        return self._key

    @property
    def group_name(self) -> str:
        return self._key

    @contextmanager
    def on_current_stream(self) -> Iterator[None]:
        """Launch collectives in this context on the current stream, as if NCCL was called directly."""
        self._is_on_current_stream = True
        try:
            yield
        finally:
            self._is_on_current_stream = False

    def collective(
        self,
        kind: str,
        inputs: Tensors,
        outputs: Tensors,
        combine: Combine,
        options: tuple[Any, ...] = (),
        *,
        rows_differ: bool = False,
        source: int | None = None,
    ) -> RankWork:
        """Take part in a collective of all members, whose inputs must have equal shapes, except with `rows_differ`.

        With `source`, outputs depend on this member's inputs alone: on the CPU it sends them and does not wait.
        """
        number, self._num_calls = self._num_calls, self._num_calls + 1
        call = self._call(kind, number, inputs, options, rows_differ=rows_differ)
        meeting = self.network.meet((self._key, number), self._ranks, self._member, call)
        tensors = [*inputs, *outputs]
        if tensors and tensors[0].device.type == DEVICE_NAME:
            stream = "" if self._is_on_current_stream else "collectives"
            return self._launched(kind, meeting, inputs, outputs, combine, stream)
        meeting.inputs[self._member] = [tensor.clone() for tensor in inputs]
        meeting.clocks[self._member] = native().host_clock()
        if source == self._member:
            self.network.waiter.offer()
            return RankWork()
        sources = range(self._size) if source is None else [source]
        missing = f"{kind}, call {number} of group {self._key} of ranks {self._ranks}"
        self.network.waiter.wait(lambda: all(member in meeting.inputs for member in sources), missing)
        for member in sources:
            native().join_host_clock(meeting.clocks[member])
        combine(outputs, [meeting.inputs.get(member, []) for member in range(self._size)])
        return RankWork()

    def _call(
        self, kind: str, number: int, inputs: Tensors, options: tuple[Any, ...], *, rows_differ: bool = False
    ) -> Call:
        shapes = tuple(
            ((-1, *tensor.shape[1:]) if rows_differ else tuple(tensor.shape), str(tensor.dtype)) for tensor in inputs
        )
        place = line_in(sys._getframe(1), (__file__, "/torch/"))
        return Call(self._ranks[self._member], self._key, number, kind, shapes, options, place)

    def _launched(
        self, kind: str, meeting: Meeting, inputs: Tensors, outputs: Tensors, combine: Combine, stream: str
    ) -> RankWork:
        """Launch this rank's two tasks of a collective on the named stream of the group."""
        device, member = self.network.device, self._member

        def send(*views: torch.Tensor) -> None:
            meeting.inputs[member] = [view.clone() for view in views]

        def receive(*views: torch.Tensor) -> None:
            combine(list(views), [meeting.inputs.get(each, []) for each in range(self._size)])

        def launch() -> None:
            device.enqueue(f"{kind}_send", send, inputs, ())
            native().arrive(meeting.gate)
            native().wait_for_gate(meeting.gate)
            device.enqueue(kind, receive, (), outputs)

        if not stream:
            launch()
            self.network.waiter.offer()
            return RankWork()
        if stream not in self._streams:
            self._streams[stream] = backend.Stream()
        own, before = self._streams[stream], backend.current_stream()
        with backend.stream(own):
            own.wait_stream(before)
            launch()
            event = own.record_event()
        self.network.waiter.offer()
        return RankWork(event, (*inputs, *outputs))

    def allreduce(self, tensors: Any, opts: Any = None) -> RankWork:
        given = _listed(tensors)
        reduce = _reduction(opts.reduceOp if opts is not None else ReduceOp.SUM)
        return self.collective("all_reduce", given, given, _reduced(reduce), (reduce.__name__,))

    def broadcast(self, tensors: Any, opts: Any = None) -> RankWork:
        given, root = _listed(tensors), opts.rootRank if opts is not None else 0

        def combine(outputs: Tensors, every: Sequence[Tensors]) -> None:
            _copy_all(outputs, every[root][: len(outputs)])

        outputs = [] if self._member == root else given
        return self.collective("broadcast", given, outputs, combine, (f"root {root}",), source=root)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> RankWork:
        def combine(found: Tensors, every: Sequence[Tensors]) -> None:
            _copy_all(found, [each[number] for number in range(len(inputs)) for each in every])

        return self.collective("all_gather", list(inputs), [each for group in outputs for each in group], combine)

    def _allgather_base(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> RankWork:
        return self.allgather([list(output.chunk(self._size))], [given])

    all_gather_single = _allgather_base

    def _reduce_scatter_base(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> RankWork:
        reduce, member = _reduction(opts.reduceOp if opts is not None else ReduceOp.SUM), self._member

        def combine(outputs: Tensors, every: Sequence[Tensors]) -> None:
            total = _total(reduce, [each[0] for each in every])
            outputs[0].copy_(total.chunk(len(every))[member].view_as(outputs[0]))

        return self.collective("reduce_scatter", [given], [output], combine, (reduce.__name__,))

    reduce_scatter_single = _reduce_scatter_base

    def all_gather_rows(self, inputs: Tensors, sizes: Sequence[int]) -> Tensors:
        """Return for each input the rows of all members; `sizes` has the number of rows of each."""
        outputs = [each.new_empty(sum(sizes), *each.shape[1:]) for each in inputs]

        def combine(found: Tensors, every: Sequence[Tensors]) -> None:
            _copy_all(found, [torch.cat(rows) for rows in zip(*every, strict=True)])

        self.collective("all_gather", inputs, outputs, combine, (f"rows {list(sizes)}",), rows_differ=True).wait()
        return outputs

    def reduce_scatter_rows(self, given: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
        """Return this member's rows of the sum over all members; `sizes` has the number of rows of each."""
        output, member = given.new_empty(sizes[self._member], *given.shape[1:]), self._member

        def combine(found: Tensors, every: Sequence[Tensors]) -> None:
            total = _total(torch.add, [each[0] for each in every])
            found[0].copy_(torch.split(total, list(sizes))[member])

        self.collective("reduce_scatter", [given], [output], combine, ("add", f"rows {list(sizes)}")).wait()
        return output

    def gather(self, outputs: Any, inputs: Any, opts: Any = None) -> RankWork:
        root = opts.rootRank if opts is not None else 0
        found = list(outputs[0]) if self._member == root else []

        def combine(found: Tensors, every: Sequence[Tensors]) -> None:
            _copy_all(found, [each[0] for each in every][: len(found)])

        return self.collective("gather", list(inputs), found, combine, (f"root {root}",))

    def barrier(self, opts: Any = None) -> RankWork:
        return self.collective("barrier", [], [], lambda outputs, every: None)

    def send(self, tensors: Any, dst: int, tag: int = 0) -> RankWork:
        return self._message("send", tensors[0], self._member, dst)

    def recv(self, tensors: Any, src: int, tag: int = 0) -> RankWork:
        return self._message("receive", tensors[0], src, self._member)

    def _message(self, kind: str, tensor: torch.Tensor, source: int, target: int) -> RankWork:
        """Send or receive a tensor; on the device as a collective of the two ranks on a stream of this pair."""
        number = self._num_messages.get((source, target), 0)
        self._num_messages[source, target] = number + 1
        names = f"from rank {self._ranks[source]} to rank {self._ranks[target]}"
        call = self._call("message", number, [tensor], (names,))
        key = self._key, source, target, number
        meeting = self.network.meet(key, (self._ranks[source], self._ranks[target]), self._member, call)
        is_source = self._member == source
        inputs, outputs = ([tensor], []) if is_source else ([], [tensor])

        def combine(found: Tensors, every: Sequence[Tensors]) -> None:
            if not is_source:
                _copy_all(found, meeting.inputs[source])

        if tensor.device.type == DEVICE_NAME:
            pair = f"messages of {min(source, target)} and {max(source, target)}"
            return self._launched(kind, meeting, inputs, outputs, combine, pair)
        if is_source:
            meeting.inputs[source] = [tensor.clone()]
            meeting.clocks[source] = native().host_clock()
        else:
            self.network.waiter.wait(lambda: source in meeting.inputs, f"a message {names} of group {self._key}")
            native().join_host_clock(meeting.clocks[source])
            combine(outputs, ())
        return RankWork()


def _listed(tensors: Any) -> Tensors:
    return list(tensors) if isinstance(tensors, list | tuple) else [tensors]


def _copy_all(targets: Tensors, sources: Sequence[torch.Tensor]) -> None:
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source.view_as(target))


Reduce = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def _reduction(operation: Any) -> Reduce:
    """Return the function of two tensors that a reduction repeats.

    Raises:
        NotImplementedError: the operation is not sum, maximum, minimum or product.
    """
    known: dict[str, Reduce] = {"SUM": torch.add, "MAX": torch.maximum, "MIN": torch.minimum, "PRODUCT": torch.mul}
    for name, reduce in known.items():
        if operation == getattr(ReduceOp, name):
            return reduce
    raise NotImplementedError(f"reduction {operation}; supported: {', '.join(known)}")


def _total(reduce: Reduce, tensors: Tensors) -> torch.Tensor:
    """Reduce tensors in the order of their ranks."""
    total = tensors[0]
    for each in tensors[1:]:
        total = reduce(total, each)
    return total


def _reduced(reduce: Reduce) -> Combine:
    def combine(outputs: Tensors, every: Sequence[Tensors]) -> None:
        _copy_all(outputs, [_total(reduce, list(of_ranks)) for of_ranks in zip(*every, strict=True)])

    return combine


def line_in(frame: FrameType | None, skipped: Sequence[str]) -> str:
    """Return the innermost line of a stack whose file name has none of these parts, as `file:line in function`."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not any(part in file for part in skipped):
            return f"{file.rpartition('/')[2]}:{frame.f_lineno} in {frame.f_code.co_name}"
        frame = frame.f_back
    return "no line of the program"


def install(network: Network) -> None:
    """Make every process group of this process, whatever backend is asked for, a `RankGroup` of its thread's rank."""
    from torch.testing._internal.distributed.multi_threaded_pg import ThreadLocalWorld  # noqa: PLC0415  slow to import

    def create(options: Any, backend_options: Any = None) -> RankGroup:
        ranks = tuple(options.global_ranks_in_group) or tuple(range(options.group_size))
        return RankGroup(options.group_rank, options.group_size, str(options.group_id), ranks, network)

    dist.Backend.register_backend(BACKEND, create, extended_api=True, devices=["cpu", DEVICE_NAME])
    dist.distributed_c10d._world = ThreadLocalWorld()  # type: ignore[assignment]
    # The registry of groups by name is in C++: each thread gets its own.
    native_module: Any = torch._C._distributed_c10d
    native_module._set_thread_isolation_mode(True)
    new_group = dist.new_group

    def new_rank_group(ranks: Any = None, timeout: Any = None, backend: Any = None, **options: Any) -> Any:
        options.pop("device_id", None)
        return new_group(ranks, timeout, BACKEND, **options)

    def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        dist.barrier(group)

    dist.new_group = new_rank_group  # type: ignore[assignment]
    # PyTorch has it for Gloo only.
    replaced: Any = dist
    replaced.monitored_barrier = monitored_barrier


def new_store() -> Any:
    """Return a new store, by which the ranks of a default group find each other."""
    made: Any = dist
    return made.HashStore()


def join(rank: int, size: int, store: Any) -> None:
    """Make this thread a rank of the default group, which has `size` ranks."""
    dist.init_process_group(BACKEND, rank=rank, world_size=size, store=store)

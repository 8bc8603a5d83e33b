"""The simulated device, activated once in a process; it runs a program and reports races."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch
from torch.utils import backend_registration

from scenarios.draw import label_key
from scenarios.events import Schedule
from workers.simulated_torch import backend
from workers.simulated_torch.backend import DEVICE_NAME
from workers.simulated_torch.digests import TaskDigests, task_digests
from workers.simulated_torch.native import Native, native
from workers.simulated_torch.reports import (
    Access,
    Order,
    Report,
    SourceLine,
    access_of,
    bypass_of,
    orders_of,
    race_of,
)

_POISON = 0xA5
_NEVER = -1
# The other policies order lanes by their names, which the streams of a program do not have.
POLICIES = ("eager", "lazy", "random")


@dataclass(frozen=True, slots=True)
class Watching:
    """What a run on the device detects and records, e.g. races, or hashes of task reads.

    `races`: detect accesses by tasks without an order. `guard`: detect the host's accesses to pinned memory that a task
    in flight uses, by page protection. `digests`: hash what each task reads and writes (slow). `writers`: keep the
    tasks that last wrote each byte. `closed`: detect the host's accesses to device memory, which a GPU would not allow,
    e.g. by operators that are not queued (slow). `poison`: fill pinned memory with this byte until a pending copy to
    the host writes it. `fill`: fill new device memory with this byte. None leaves the old bytes, as hardware does.
    """

    races: bool = True
    guard: bool = True
    digests: bool = False
    writers: bool = False
    closed: bool = False
    poison: int | None = _POISON
    fill: int | None = None


class Device:
    """Simulated device of this process, as returned by `activate`.

    A run lasts from `begin` to `end`. The caller numbers its steps with `step`, from 0; the current number labels each
    launch for schedules and reports. The file names of reports are relative to the folder `root`.
    """

    def __init__(self, library: Native) -> None:
        self._native = library
        self.root = Path.cwd()
        # Returns the parts of its tensors that a launch uses, given its name and whether it writes them; default: all.
        self.accessed_tensors: Callable[[str, Sequence[torch.Tensor], bool], Sequence[torch.Tensor]] = _all_tensors

    def begin(
        self, schedule: Schedule | None = None, watching: Watching | None = None, new_streams: bool = False
    ) -> None:
        """Begin a run under a schedule, after running the tasks that are still enqueued.

        With `new_streams`, streams that were created before must not be used again: streams are numbered from 1 again,
        so that the report does not depend on earlier runs of this process.

        Raises:
            ValueError: the schedule is for lanes, not for streams.
        """
        schedule, watching = schedule or Schedule(), watching or Watching()
        if schedule.policy not in POLICIES:
            raise ValueError(
                f"schedule {schedule.policy} is for the lanes of Specstorm's own engine; the simulated device supports "
                f"{', '.join(POLICIES)}"
            )
        self._native.begin(
            schedule.policy,
            schedule.seed,
            [(hold.op.name, hold.op.step, hold.until.name, hold.until.step) for hold in schedule.holds],
            watching.races,
            watching.guard,
            watching.digests,
            watching.writers,
            watching.closed,
            _NEVER if watching.fill is None else watching.fill,
            _NEVER if watching.poison is None else watching.poison,
            new_streams,
        )

    def end(self) -> Report:
        """Run all enqueued tasks; return the report (races and counters) of the run."""
        self._native.drain()
        return self.report()

    def drop(self) -> None:
        """Forget all enqueued tasks, e.g. those of an engine that has failed."""
        self._native.drop()

    def report(self) -> Report:
        """Return the report of the run so far, without running tasks."""
        races = tuple(race_of(race, self.root) for race in self._native.races())
        bypasses = tuple(bypass_of(bypass, self.root) for bypass in self._native.bypasses())
        return Report(races, bypasses, MappingProxyType(self._native.counts()), MappingProxyType(self._native.forced()))

    def orders(self) -> tuple[Order, ...]:
        """Return the calls so far that order tasks (e.g. event waits), by source line.

        These are records, waits, synchronisations and blocking copies of the program, but not the waits for a value
        that the host reads. A line with both a record and a wait is a call of `wait_stream`. A run without any check
        records no ordering calls.
        """
        return orders_of(self._native.orders(), self.root)

    def leave_out(self, lines: Iterable[SourceLine]) -> None:
        """Ignore the calls that order tasks (e.g. event waits) at these source lines, in this run.

        A program without an order that it needs has a race. This shows whether a line is needed, and whether its
        absence is detected.
        """
        self._native.leave_out([(line.file, line.line) for line in lines])

    def pass_over(self, paths: Iterable[Path]) -> None:
        """Name callers instead of these folders and files as source locations in reports."""
        self._native.pass_over([str(path) if path.suffix == ".py" else f"{path}/" for path in paths])

    def digests(self) -> tuple[TaskDigests, ...]:
        """Run all enqueued tasks; return hashes of what each task read and wrote."""
        self._native.drain()
        return task_digests(self._native.digests(), self.root)

    def writers(self, tensor: torch.Tensor) -> tuple[Access, ...]:
        """Return the tasks that last wrote any byte of a tensor, newest first.

        The result is empty if the run does not record writers, or if the memory is neither the device's nor pinned.
        """
        return tuple(access_of(side, self.root) for side in self._native.writers(tensor))

    def run(
        self, program: Callable[[], object], schedule: Schedule | None = None, watching: Watching | None = None
    ) -> Report:
        """Run a program between `begin` and `end`; it must create all streams that it uses."""
        self.begin(schedule, watching, new_streams=True)
        program()
        return self.end()

    def step(self, number: int) -> None:
        """Set the step number that labels launches from now on."""
        self._native.step(number)

    def point(self, name: str) -> None:
        """Record that the host has reached a named point; tasks held until then may run."""
        self._native.point(name)

    def name(self, tensor: torch.Tensor, name: str) -> None:
        """Set the name of a tensor's memory (device or pinned) for reports.

        Raises:
            RuntimeError: the memory is neither.
        """
        self._native.name_buffer(tensor, name)

    def name_stream(self, stream: torch.Stream, name: str) -> None:
        self._native.name_stream(stream.stream_id, name)

    def enqueue(
        self,
        name: str,
        function: Callable[..., object],
        reads: Sequence[torch.Tensor] = (),
        writes: Sequence[torch.Tensor] = (),
    ) -> None:
        """Launch a Python function as a task on the current stream.

        The function receives CPU tensors over the memory of `reads`, then of `writes`. A tensor that it reads and
        writes is in `writes` only if it is written before it is read, otherwise in both. The function must neither
        launch device work nor keep device tensors alive: it should capture a `host_view` of any other tensor it needs.
        """
        views = [self._native.host_view(tensor) for tensor in (*reads, *writes)]
        self.launch(name, lambda: function(*views), reads, writes)

    def launch(
        self, name: str, task: Callable[[], object], reads: Sequence[torch.Tensor], writes: Sequence[torch.Tensor]
    ) -> None:
        """Launch a function without arguments, which uses views of these tensors, as a task."""
        self._native.enqueue(
            name, task, self.accessed_tensors(name, reads, False), self.accessed_tensors(name, writes, True)
        )

    def host_view(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a CPU tensor over a tensor's memory, for use in a task; it owns no memory."""
        return self._native.host_view(tensor)

    def device_view(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a device tensor over pinned memory, which tasks then access in place (UVA).

        Raises:
            RuntimeError: the memory is not pinned.
        """
        return self._native.device_view(tensor)

    def weak_view(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a device tensor over a tensor's memory that does not keep the memory alive.

        A graph's outputs are kept by its memory pool instead.
        """
        return self._native.weak_view(tensor)

    def new_tag(self) -> int:
        """Return a number that tags no memory yet."""
        return self._native.new_tag()

    @contextmanager
    def tagging(self, tag: int) -> Iterator[None]:
        """Tag all device memory that is allocated in this context (a memory pool).

        Memory loses its tag when it is freed; a tag is like a memory pool.
        """
        before = self._native.set_tag(tag)
        try:
            yield
        finally:
            self._native.set_tag(before)

    def tagged(self, tag: int) -> Sequence[torch.Tensor]:
        """Return byte tensors over all allocated memory with this tag; they own no memory."""
        return self._native.tagged(tag)

    def queue_op(self, library: str, name: str) -> None:
        """Make each call of an operator a device task, if one kernel serves all devices.

        The operator is `library::name`. Without this its calls would run immediately. Calls of operators with a CPU
        kernel only are queued in any case.
        """
        self._native.queue_op(library, name)


def _all_tensors(name: str, tensors: Sequence[torch.Tensor], is_written: bool) -> Sequence[torch.Tensor]:
    return tensors


def _draw_key(is_host: bool, name: str) -> tuple[int, int]:
    """Return the random key that gives an op or host call its priority in a schedule."""
    return label_key("host" if is_host else "lane", name)


@cache
def activate() -> Device:
    """Register the device "sim" with PyTorch, permanently in this process, and return it.

    The first call on a machine compiles the device, in about a minute. From now on it runs eagerly and detects races.

    Raises:
        BuildError: the device cannot be built here.
    """
    library = native()
    backend_registration.rename_privateuse1_backend(DEVICE_NAME)
    # Reports skip lines in these folders, and name the lines that call into them.
    folders = [Path(torch.__file__).parent, Path(np.__file__).parent, Path(__file__).parent]
    triton = find_spec("triton")
    if triton is not None and triton.origin is not None:
        folders.append(Path(triton.origin).parent)
    library.register([f"{folder}/" for folder in folders], _draw_key)
    torch._register_device_module(DEVICE_NAME, backend)  # type: ignore[no-untyped-call]
    backend_registration.generate_methods_for_privateuse1_backend(for_storage=False)
    device = Device(library)
    device.begin()
    return device


_CUDA_NAMES = (
    *("Stream", "Event", "stream", "current_stream", "default_stream", "set_stream", "synchronize"),
    *("CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing"),
)


@contextmanager
def cuda_names(others: Sequence[str] = ()) -> Iterator[None]:
    """Replace names of `torch.cuda` (streams, events, graphs) by this device's, in this context.

    `others` are further names to replace by the functions of `backend`.
    """
    before = {name: getattr(torch.cuda, name) for name in (*_CUDA_NAMES, *others)}
    for name in before:
        setattr(torch.cuda, name, getattr(backend, name))
    try:
        yield
    finally:
        for name, original in before.items():
            setattr(torch.cuda, name, original)

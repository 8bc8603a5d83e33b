"""The simulated device: activated once in a process, then run after run under schedules, each with its report."""

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
# The others order lanes by names, which streams of a program do not have.
POLICIES = ("eager", "lazy", "random")


@dataclass(frozen=True, slots=True)
class Watching:
    """Options of what is watched in a run.

    `races`: accesses of tasks that nothing orders. `guard`: accesses of the host to pinned memory in flight, by page
    protection. `digests`: hashes of what each task reads and writes (slow). `writers`: which tasks wrote last what is
    there. `closed`: accesses of the host to memory of
    the device, which a GPU does not allow, as those of operators that are not queued (slow). `poison`: pinned memory
    that a copy to the host will write holds this byte until the copy runs; `fill`: so does fresh memory of the device
    until it is written; None leaves there what was there, as hardware does.
    """

    races: bool = True
    guard: bool = True
    digests: bool = False
    writers: bool = False
    closed: bool = False
    poison: int | None = _POISON
    fill: int | None = None


class Device:
    """The device of this process; `activate` returns it.

    A run lies between `begin` and `end`; steps are counted from 0 by the caller of `step`, and label what is launched
    in them, for schedules and reports. `root` is the folder to which the paths of reports are relative.
    """

    def __init__(self, library: Native) -> None:
        self._native = library
        self.root = Path.cwd()
        # What a launch uses of its tensors, by its name and whether it writes them: all, unless more is known.
        self.narrowed: Callable[[str, Sequence[torch.Tensor], bool], Sequence[torch.Tensor]] = _all_of_them

    def begin(
        self, schedule: Schedule | None = None, watching: Watching | None = None, new_streams: bool = False
    ) -> None:
        """Begin a run under a schedule; whatever is still enqueued runs first, and earlier records are dropped.

        With `new_streams` streams that were made before must not be used: streams are counted from 1 again, so that the
        run's report does not depend on what ran before it in this process.

        Raises:
            ValueError: the schedule is not one for streams.
        """
        schedule, watching = schedule or Schedule(), watching or Watching()
        if schedule.policy not in POLICIES:
            raise ValueError(
                f"schedule {schedule.policy} orders the lanes of our own engine; a simulated PyTorch device takes "
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
        """Run whatever is still enqueued, and report on the run."""
        self._native.drain()
        return self.report()

    def report(self) -> Report:
        """Report on the run so far; nothing runs for it."""
        races = tuple(race_of(race, self.root) for race in self._native.races())
        bypasses = tuple(bypass_of(bypass, self.root) for bypass in self._native.bypasses())
        return Report(races, bypasses, MappingProxyType(self._native.counts()), MappingProxyType(self._native.forced()))

    def orders(self) -> tuple[Order, ...]:
        """Return the calls of the run so far that order work: records, waits, synchronisations, blocking copies.

        They are those of the program itself, without waits of the device for a value that the host reads. A line that
        makes a record and a wait is one of `wait_stream`. A run that is not watched has none.
        """
        return orders_of(self._native.orders(), self.root)

    def leave_out(self, lines: Iterable[SourceLine]) -> None:
        """Leave out every call at these lines that orders work, in the watched run that has begun.

        A program without an order that it needs has a race: this shows whether a line is needed, and whether its
        absence is found.
        """
        self._native.leave_out([(line.file, line.line) for line in lines])

    def pass_over(self, paths: Iterable[Path]) -> None:
        """Have reports name lines that call into these folders and Python files, too, in the place of lines in them."""
        self._native.pass_over([str(path) if path.suffix == ".py" else f"{path}/" for path in paths])

    def digests(self) -> tuple[TaskDigests, ...]:
        """Run whatever is still enqueued, and return what each task read and wrote, in the order of launch."""
        self._native.drain()
        return task_digests(self._native.digests(), self.root)

    def writers(self, tensor: torch.Tensor) -> tuple[Access, ...]:
        """Return the tasks launched so far that wrote last any of the bytes of a tensor, newest first.

        There are none in a run that does not keep them, and none of memory that is not the device's or pinned.
        """
        return tuple(access_of(side, self.root) for side in self._native.writers(tensor))

    def run(
        self, program: Callable[[], object], schedule: Schedule | None = None, watching: Watching | None = None
    ) -> Report:
        """Run a program, which makes all streams that it uses, as one run of the device."""
        self.begin(schedule, watching, new_streams=True)
        program()
        return self.end()

    def step(self, number: int) -> None:
        """Label what is launched from here on with a step of the program."""
        self._native.step(number)

    def point(self, name: str) -> None:
        """Pass a named point of the host, until which schedules may hold tasks back."""
        self._native.point(name)

    def name(self, tensor: torch.Tensor, name: str) -> None:
        """Name the memory of a tensor (the device's or pinned) in reports.

        Raises:
            RuntimeError: it is other memory.
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
        """Launch a Python function as a task of the current stream that reads and writes these tensors.

        It is called with CPU tensors over the bytes of `reads`, then of `writes`. A tensor that it both reads and
        writes stands in `writes` alone if it is written first, else in both. It must neither launch device work nor
        keep tensors of the device alive: capture `host_view` of what else it needs.
        """
        views = [self._native.host_view(tensor) for tensor in (*reads, *writes)]
        self.launch(name, lambda: function(*views), reads, writes)

    def launch(
        self, name: str, task: Callable[[], object], reads: Sequence[torch.Tensor], writes: Sequence[torch.Tensor]
    ) -> None:
        """Launch a task that has views of its own of these tensors."""
        self._native.enqueue(name, task, self.narrowed(name, reads, False), self.narrowed(name, writes, True))

    def host_view(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a CPU tensor over the bytes of a tensor, for use in a task; it does not keep them alive."""
        return self._native.host_view(tensor)

    def device_view(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the device over pinned memory, which tasks then read and write where it is (UVA).

        Raises:
            RuntimeError: the memory is not pinned.
        """
        return self._native.device_view(tensor)

    def weak_view(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the device over the bytes of another one, which are handed out again without regard to it.

        What a graph leaves its results in is kept by its pool.
        """
        return self._native.weak_view(tensor)

    def new_tag(self) -> int:
        """Return a tag for memory, which none bears yet."""
        return self._native.new_tag()

    @contextmanager
    def tagging(self, tag: int) -> Iterator[None]:
        """Let memory of the device that is handed out meanwhile bear a tag until it is released, as a pool's does."""
        before = self._native.set_tag(tag)
        try:
            yield
        finally:
            self._native.set_tag(before)

    def tagged(self, tag: int) -> Sequence[torch.Tensor]:
        """Return tensors of bytes over the memory in use that bears a tag; they do not keep it alive."""
        return self._native.tagged(tag)

    def queue_op(self, library: str, name: str) -> None:
        """Make tasks of the calls of an operator `library::name` whose kernel is registered for every device.

        Operators with a kernel for CPU tensors alone need nothing: their calls are tasks already.
        """
        self._native.queue_op(library, name)


def _all_of_them(name: str, tensors: Sequence[torch.Tensor], is_written: bool) -> Sequence[torch.Tensor]:
    return tensors


def _draw_key(is_host: bool, name: str) -> tuple[int, int]:
    """Return the key of the labelled draws of a task's op or of a call of the host: see `workers.lanes.policies`."""
    return label_key("host" if is_host else "lane", name)


@cache
def activate() -> Device:
    """Make the device "sim" known to PyTorch, in this process for good, and return it.

    The first call on a machine compiles it: about a minute. It runs eagerly and watches for races from here on.

    Raises:
        BuildError: it cannot be built here.
    """
    library = native()
    backend_registration.rename_privateuse1_backend(DEVICE_NAME)
    # Reports name the lines that call into these folders, not lines in them.
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
    """Let streams, events and graphs of `torch.cuda` be the device's for a while, for a program that asks for these.

    So are `others`, functions of `backend`.
    """
    before = {name: getattr(torch.cuda, name) for name in (*_CUDA_NAMES, *others)}
    for name in before:
        setattr(torch.cuda, name, getattr(backend, name))
    try:
        yield
    finally:
        for name, original in before.items():
            setattr(torch.cuda, name, original)

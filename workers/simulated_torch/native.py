"""Interface of the simulated device's C++ library, and how the library is loaded."""

from collections.abc import Callable, Sequence
from functools import cache
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from typing import Protocol, TypeAlias, TypedDict, cast

from torch import Generator, Tensor

from workers.simulated_torch.build import NAME, library

# (file, line, function), innermost first.
Lines = list[tuple[str, int, str]]


class NativeSide(TypedDict):
    """One access of a race, as the C++ library reports it."""

    actor: str
    write: bool
    op: str
    step: int
    nth: int
    lines: Lines
    buffer: str
    size: int
    tenancy: int
    allocated: Lines


class NativeRace(TypedDict):
    """A race as the C++ library reports it: two accesses, their common bytes, and a count."""

    first: NativeSide
    second: NativeSide
    low: int
    high: int
    count: int


# One task: op, step, number among equal ops of the step, stream, lines, hashes of reads, hashes of writes.
NativeDigests: TypeAlias = tuple[str, int, int, str, Lines, list[int], list[int]]


class NativeGraph(Protocol):
    """Tasks captured on a stream, which can be launched again."""

    @property
    def num_tasks(self) -> int:
        """Number of captured tasks."""


class NativeClock(Protocol):
    """What is ordered before a call of a host thread."""


class NativeGate(Protocol):
    """A point that all ranks of a collective must reach before any of them can pass it."""


class Native(Protocol):
    """The simulated device's C++ library; its state belongs to the process."""

    def register(self, libraries: Sequence[str], draw_key: Callable[[bool, str], tuple[int, int]]) -> None:
        """Register as PyTorch's backend; reports skip lines of files with these path prefixes."""

    def pass_over(self, libraries: Sequence[str]) -> None:
        """Skip lines of files with these path prefixes in reports, in addition to earlier ones."""

    def begin(
        self,
        policy: str,
        seed: int,
        holds: Sequence[tuple[str, int, str, int]],
        races: bool,
        guard: bool,
        digests: bool,
        writers: bool,
        closed: bool,
        fill: int,
        poison: int,
        new_streams: bool,
    ) -> None:
        """Begin a run under a schedule, with the given checks."""

    def drain(self) -> None:
        """Run all enqueued tasks."""

    def drop(self) -> None:
        """Forget all enqueued tasks, e.g. those of an engine that has failed."""

    def step(self, number: int) -> None:
        """Set the step number that labels launches from now on."""

    def Graph(self, pool: int) -> NativeGraph:
        """Create an empty graph that allocates from memory pool number `pool` (1 or more)."""

    def begin_capture(self, graph: NativeGraph) -> None:
        """Capture launches on the current stream into a graph from now on."""

    def end_capture(self) -> None:
        """End the capture."""

    def captures(self) -> bool:
        """Return whether the current stream is being captured."""

    def replay(self, graph: NativeGraph) -> None:
        """Launch all tasks of a graph on the current stream."""

    def point(self, name: str) -> None:
        """Record that the host has reached a named point; tasks held until then may run."""

    def races(self) -> list[NativeRace]:
        """Return the races since the run began."""

    def orders(self) -> list[tuple[str, Lines, int]]:
        """Return the ordering calls of this run, as (call, lines, count)."""

    def leave_out(self, lines: Sequence[tuple[str, int]]) -> None:
        """Ignore, in this run, ordering calls at these source lines; paths match by suffix."""

    def bypasses(self) -> list[NativeSide]:
        """Return the host's accesses to device memory in this run that use no device call."""

    def digests(self) -> list[NativeDigests]:
        """Return the hashes of what each task of this run has read and written."""

    def writers(self, tensor: Tensor) -> list[NativeSide]:
        """Return the last writers of any byte of a tensor, newest first; empty if not kept."""

    def counts(self) -> dict[str, int]:
        """Return the counters of this run, by name."""

    def forced(self) -> dict[str, int]:
        """Return how often each operator made the host wait; on a GPU it would not."""

    def synchronize(self) -> None:
        """Wait until all tasks of the device have run."""

    def Gate(self, num_ranks: int) -> NativeGate:
        """Create a gate that opens once the work of this number of ranks has arrived at it and has run."""

    def arrive(self, gate: NativeGate) -> None:
        """Add the work enqueued so far on the current stream to a gate."""

    def wait_for_gate(self, gate: NativeGate) -> None:
        """Make later work of the current stream wait until a gate is open."""

    def host_clock(self) -> NativeClock:
        """Return the order that the calls of this host thread have by now."""

    def join_host_clock(self, clock: NativeClock) -> None:
        """Order further calls of this host thread after the calls of another one, whose message it has received."""

    def enter_rank(self, rank: int) -> None:
        """Make this thread a new host of a rank, and that rank's default stream its current stream."""

    def default_stream(self) -> int:
        """Return the default stream of this thread's rank."""

    def give_way_by(self, give_way: Callable[[], None]) -> None:
        """Set the function to call when the host waits and no stream can run a task."""

    def current_stream(self) -> int:
        """Return the current stream of this thread."""

    def set_stream(self, stream: int) -> int:
        """Set the current stream of this thread; return the previous one."""

    def name_stream(self, stream: int, name: str) -> None:
        """Set the name of a stream for reports."""

    def name_buffer(self, tensor: Tensor, name: str) -> None:
        """Set the name of a tensor's memory for reports."""

    def enqueue(
        self, name: str, function: Callable[[], object], reads: Sequence[Tensor], writes: Sequence[Tensor]
    ) -> None:
        """Launch a Python function as a task."""

    def queue_op(self, library: str, name: str) -> None:
        """Make each call of a registered operator a task."""

    def host_view(self, tensor: Tensor) -> Tensor:
        """Return a CPU tensor that shares a tensor's memory and does not keep it alive."""

    def device_view(self, tensor: Tensor) -> Tensor:
        """Return a device tensor that shares the memory of a pinned CPU tensor."""

    def weak_view(self, tensor: Tensor) -> Tensor:
        """Return a device tensor that shares a tensor's memory and does not keep it alive."""

    def new_tag(self) -> int:
        """Return a number that tags no memory yet."""

    def set_tag(self, tag: int) -> int:
        """Set the tag of memory allocated from now on (0: none); return the previous tag."""

    def tagged(self, tag: int) -> list[Tensor]:
        """Return byte tensors over all allocated memory with a tag; they own no memory."""

    def default_generator(self) -> Generator:
        """Return the device's default random generator."""


@cache
def native() -> Native:
    """Return the native library; the first call builds it if necessary, and loads it.

    Raises:
        BuildError: it cannot be built here.
    """
    path = library()
    loader = ExtensionFileLoader(NAME, str(path))
    spec = spec_from_file_location(NAME, path, loader=loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return cast(Native, module)

"""The native library: what the device's C++ part offers to Python, and how this process loads it."""

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
    """One of two accesses that race; `tenancy` numbers the owners of its block of memory in turn."""

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
    """Two accesses that race, the bytes they have in common, and how often they did."""

    first: NativeSide
    second: NativeSide
    low: int
    high: int
    count: int


# What one task read and wrote: its op, step, number among those, stream, lines, hashes of reads and of writes.
NativeDigests: TypeAlias = tuple[str, int, int, str, Lines, list[int], list[int]]


class NativeGraph(Protocol):
    """Tasks that were captured on a stream, to be launched again."""

    @property
    def num_tasks(self) -> int:
        """The number of its tasks."""


class Native(Protocol):
    """The native library; its state is the process's, as PyTorch's backends are."""

    def register(self, libraries: Sequence[str], draw_key: Callable[[bool, str], tuple[int, int]]) -> None:
        """Become PyTorch's backend; lines of files under these prefixes are passed over in reports."""

    def pass_over(self, libraries: Sequence[str]) -> None:
        """Pass over lines of files under these prefixes, too."""

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
        """Begin a run."""

    def drain(self) -> None:
        """Run everything that is still enqueued."""

    def step(self, number: int) -> None:
        """Label what is launched from here on."""

    def Graph(self, pool: int) -> NativeGraph:
        """Make a graph without tasks, whose memory is that of a pool, which numbers from 1 name."""

    def begin_capture(self, graph: NativeGraph) -> None:
        """Keep what the current stream is given in a graph, until the end of the capture."""

    def end_capture(self) -> None:
        """End the capture."""

    def captures(self) -> bool:
        """Tell whether the current stream is being captured."""

    def replay(self, graph: NativeGraph) -> None:
        """Launch the tasks of a graph on the current stream."""

    def point(self, name: str) -> None:
        """Pass a named point of the host."""

    def races(self) -> list[NativeRace]:
        """Return the races found since the run began."""

    def orders(self) -> list[tuple[str, Lines, int]]:
        """Return the program's calls that order work since the run began: call, lines, count."""

    def leave_out(self, lines: Sequence[tuple[str, int]]) -> None:
        """Leave out calls that order work at these lines until the next run; a file is named by its path's end."""

    def bypasses(self) -> list[NativeSide]:
        """Return the host's accesses to memory of the device since the run began."""

    def digests(self) -> list[NativeDigests]:
        """Return the digests of the tasks launched since the run began."""

    def writers(self, tensor: Tensor) -> list[NativeSide]:
        """Return the last writes of any of the bytes of a tensor in the run, newest first, if they are kept."""

    def counts(self) -> dict[str, int]:
        """Return the counters of the run."""

    def forced(self) -> dict[str, int]:
        """Return the operators that ran while the host waited where a GPU's host would not, with their counts."""

    def synchronize(self) -> None:
        """Wait for the device."""

    def current_stream(self) -> int:
        """Return the current stream of this thread."""

    def set_stream(self, stream: int) -> int:
        """Set the current stream of this thread, and return the one before."""

    def name_stream(self, stream: int, name: str) -> None:
        """Name a stream in reports."""

    def name_buffer(self, tensor: Tensor, name: str) -> None:
        """Name the memory of a tensor in reports."""

    def enqueue(
        self, name: str, function: Callable[[], object], reads: Sequence[Tensor], writes: Sequence[Tensor]
    ) -> None:
        """Launch a Python function as a task."""

    def queue_op(self, library: str, name: str) -> None:
        """Make tasks of the calls of a registered operator."""

    def host_view(self, tensor: Tensor) -> Tensor:
        """Return a CPU tensor over the same bytes, which it does not keep alive."""

    def device_view(self, tensor: Tensor) -> Tensor:
        """Return a tensor of the device over pinned memory."""

    def weak_view(self, tensor: Tensor) -> Tensor:
        """Return a tensor of the device over the same bytes, which it does not keep."""

    def new_tag(self) -> int:
        """Return a tag that no memory bears."""

    def set_tag(self, tag: int) -> int:
        """Tag the device's memory that is handed out from here on, and return the tag before; 0 is none."""

    def tagged(self, tag: int) -> list[Tensor]:
        """Return tensors of bytes over all memory in use that bears a tag, which they do not keep."""

    def default_generator(self) -> Generator:
        """Return the device's default generator of random numbers."""


@cache
def native() -> Native:
    """Return the native library, which is built and loaded as a Python module at the first call.

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

"""Interface of the native library, the C++ part of the device, and how it is loaded."""

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
    """One access of a race; `tenancy` numbers the successive owners of its memory block."""

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
    """A race: two accesses, their common byte range, and the number of occurrences."""

    first: NativeSide
    second: NativeSide
    low: int
    high: int
    count: int


# One task: op, step, number among equal ops of the step, stream, lines, hashes of reads, hashes of writes.
NativeDigests: TypeAlias = tuple[str, int, int, str, Lines, list[int], list[int]]


class NativeGraph(Protocol):
    """Tasks captured on a stream, to be launched again."""

    @property
    def num_tasks(self) -> int:
        """The number of its tasks."""


class Native(Protocol):
    """The native library; its state is global in the process."""

    def register(self, libraries: Sequence[str], draw_key: Callable[[bool, str], tuple[int, int]]) -> None:
        """Register as PyTorch's backend; reports skip lines of files with these prefixes."""

    def pass_over(self, libraries: Sequence[str]) -> None:
        """Skip lines of files with these further prefixes in reports."""

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
        """Run all enqueued tasks."""

    def step(self, number: int) -> None:
        """Label launches from now on with a step number."""

    def Graph(self, pool: int) -> NativeGraph:
        """Create an empty graph that uses memory pool number `pool`, which is at least 1."""

    def begin_capture(self, graph: NativeGraph) -> None:
        """Capture the launches on the current stream into a graph."""

    def end_capture(self) -> None:
        """End the capture."""

    def captures(self) -> bool:
        """Return whether the current stream is being captured."""

    def replay(self, graph: NativeGraph) -> None:
        """Launch the tasks of a graph on the current stream."""

    def point(self, name: str) -> None:
        """Pass a named point of the host."""

    def races(self) -> list[NativeRace]:
        """Return the races since the run began."""

    def orders(self) -> list[tuple[str, Lines, int]]:
        """Return the ordering calls since the run began, as (call, lines, count)."""

    def leave_out(self, lines: Sequence[tuple[str, int]]) -> None:
        """Skip the ordering calls at these lines in this run; files are matched by path suffix."""

    def bypasses(self) -> list[NativeSide]:
        """Return the host's accesses to device memory since the run began."""

    def digests(self) -> list[NativeDigests]:
        """Return the digests of the tasks launched since the run began."""

    def writers(self, tensor: Tensor) -> list[NativeSide]:
        """Return the last writers of any byte of a tensor, newest first; empty if not recorded."""

    def counts(self) -> dict[str, int]:
        """Return the counters of the run."""

    def forced(self) -> dict[str, int]:
        """Return how often each operator ran while the host waited, although a GPU's host would not."""

    def synchronize(self) -> None:
        """Wait for the device."""

    def current_stream(self) -> int:
        """Return the current stream of this thread."""

    def set_stream(self, stream: int) -> int:
        """Set the current stream of this thread; return the previous one."""

    def name_stream(self, stream: int, name: str) -> None:
        """Name a stream in reports."""

    def name_buffer(self, tensor: Tensor, name: str) -> None:
        """Name the memory of a tensor in reports."""

    def enqueue(
        self, name: str, function: Callable[[], object], reads: Sequence[Tensor], writes: Sequence[Tensor]
    ) -> None:
        """Launch a Python function as a task."""

    def queue_op(self, library: str, name: str) -> None:
        """Make a task of each call of a registered operator."""

    def host_view(self, tensor: Tensor) -> Tensor:
        """Return a CPU tensor over the same memory, without ownership."""

    def device_view(self, tensor: Tensor) -> Tensor:
        """Return a device tensor over pinned memory."""

    def weak_view(self, tensor: Tensor) -> Tensor:
        """Return a device tensor over the same memory, without ownership."""

    def new_tag(self) -> int:
        """Return an unused tag."""

    def set_tag(self, tag: int) -> int:
        """Tag memory allocated from now on; return the previous tag. 0 means no tag."""

    def tagged(self, tag: int) -> list[Tensor]:
        """Return byte tensors over all allocated memory with a tag, without ownership."""

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

"""The module `torch.sim`: functions of the simulated device, named as in `torch.cuda`."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import torch

from workers.simulated_torch.native import NativeGraph, native

DEVICE_NAME = "sim"
# The number of PyTorch's device type PrivateUse1; this is its only device.
_DEVICE_TYPE = 20


class Stream(torch.Stream):
    """Stream of the simulated device; takes the arguments of `torch.cuda.Stream`."""

    def __new__(cls, device: Any = None, priority: int = 0, **existing: int) -> "Stream":
        """Create a stream, or return the existing one with this stream id."""
        if existing:
            return super().__new__(cls, **existing)
        return super().__new__(cls, torch.device(DEVICE_NAME, 0), priority=priority)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Return the lowest and the highest stream priority; a priority has no effect."""
        return 0, 0


class Event(torch.Event):
    """Event of the simulated device; ignores the arguments of `torch.cuda.Event`."""

    def __new__(
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> "Event":
        return super().__new__(cls, torch.device(DEVICE_NAME, 0), enable_timing=enable_timing)


def _stream(index: int) -> Stream:
    return Stream(stream_id=index, device_index=0, device_type=_DEVICE_TYPE)


def current_stream(device: Any = None) -> Stream:
    """Return the current stream of this thread."""
    return _stream(native().current_stream())


def default_stream(device: Any = None) -> Stream:
    """Return the default stream of this thread's rank, which is current until another one is set."""
    return _stream(native().default_stream())


def set_stream(stream: torch.Stream | None) -> None:
    """Make a stream the current stream of this thread."""
    if stream is not None:
        native().set_stream(stream.stream_id)


class StreamContext:
    """Context in which a stream is the current stream of this thread; None changes nothing.

    It can be entered repeatedly, and nested in itself.
    """

    def __init__(self, stream: torch.Stream | None) -> None:
        self._stream = stream
        self._before: list[int] = []

    def __enter__(self) -> None:
        if self._stream is not None:
            self._before.append(native().set_stream(self._stream.stream_id))

    def __exit__(self, *raised: object) -> None:
        if self._stream is not None:
            native().set_stream(self._before.pop())


def stream(stream: torch.Stream | None) -> StreamContext:
    """Return the context in which a stream is the current stream."""
    return StreamContext(stream)


@contextmanager
def device(device: Any = None) -> Iterator[None]:
    """Yield without a change: a GPU program selects a device here, but there is only one."""
    yield


class CUDAGraph:
    """Graph of captured device tasks, which each replay launches again.

    A replay uses the memory and the numbers of the capture; host code between the tasks does not run again. The methods
    have the arguments of `torch.cuda.CUDAGraph`.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        self._graph: NativeGraph | None = None
        self._pool = 0

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        """Begin capturing the current stream, with a shared memory pool or a new one."""
        self._pool = (pool or graph_pool_handle())[1]
        self._graph = native().Graph(self._pool)
        native().begin_capture(self._graph)

    def capture_end(self) -> None:
        """End the capture."""
        native().end_capture()

    def replay(self) -> None:
        """Launch all captured tasks on the current stream.

        Raises:
            RuntimeError: nothing was captured.
        """
        if self._graph is None:
            raise RuntimeError("a graph was replayed without a capture")
        native().replay(self._graph)

    def reset(self) -> None:
        """Drop the captured tasks."""
        self._graph = None

    def pool(self) -> tuple[int, int]:
        """Return the handle of the memory pool; graphs that share it must not overlap in time."""
        return (0, self._pool)


class graph:
    """Context in which a graph captures all launches, on the given stream or a new one."""

    def __init__(
        self,
        cuda_graph: CUDAGraph,
        pool: Any = None,
        stream: torch.Stream | None = None,
        capture_error_mode: str = "global",
    ) -> None:
        self._graph, self._pool = cuda_graph, pool
        self._stream = StreamContext(Stream() if stream is None else stream)

    def __enter__(self) -> None:
        synchronize()
        self._stream.__enter__()
        self._graph.capture_begin(self._pool)

    def __exit__(self, *raised: object) -> None:
        try:
            self._graph.capture_end()
        finally:
            self._stream.__exit__(*raised)


_POOLS = count(1)


def graph_pool_handle() -> tuple[int, int]:
    """Return the handle of a new memory pool for captured graphs."""
    return (0, next(_POOLS))


def is_current_stream_capturing() -> bool:
    """Return whether the current stream is being captured."""
    return native().captures()


def synchronize(device: Any = None) -> None:
    """Wait until the tasks of all streams have run."""
    native().synchronize()


def is_available() -> bool:
    """Return True: a simulated device is always available."""
    return True


def is_initialized() -> bool:
    """Return True: the device is initialized when it is registered."""
    return True


def device_count() -> int:
    """Return the number of devices, 1."""
    return 1


def current_device() -> int:
    """Return the index of the only device, 0."""
    return 0


def set_device(device: Any) -> None:
    """Do nothing: a GPU program selects a device here, but there is only one."""


def get_device_name(device: Any = None) -> str:
    """Return the device's name for programs that print it."""
    return "simulated device"


def empty_cache() -> None:
    """Do nothing: freed memory stays cached, so that later allocations get the same blocks."""


def manual_seed(seed: int) -> None:
    """Seed the device's default random generator."""
    native().default_generator().manual_seed(seed)


manual_seed_all = manual_seed


def get_rng_state(device: Any = None) -> torch.Tensor:
    """Return the state of the device's default random generator."""
    return native().default_generator().get_state()


def set_rng_state(new_state: torch.Tensor, device: Any = None) -> None:
    """Set the state of the device's default random generator."""
    native().default_generator().set_state(new_state)


def memory_allocated(device: Any = None) -> int:
    """Return the bytes of device memory in use."""
    return torch.accelerator.memory_allocated()


def max_memory_allocated(device: Any = None) -> int:
    """Return the largest number of bytes of device memory in use so far."""
    return torch.accelerator.max_memory_allocated()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Return the free and the total bytes of device memory."""
    return torch.accelerator.get_memory_info()


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the dtypes that autocast may use on this device."""
    return [torch.bfloat16, torch.float16, torch.float32]


def _is_in_bad_fork() -> bool:
    return False


def _lazy_init() -> None:
    """Do nothing: the device is initialized when it is registered, not at its first use."""

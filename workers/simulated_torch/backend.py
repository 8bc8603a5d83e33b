"""The module `torch.sim`: the device's functions that programs call, like `torch.cuda`."""

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
    """A stream of the device; takes the arguments of `torch.cuda.Stream`."""

    def __new__(cls, device: Any = None, priority: int = 0, **existing: int) -> "Stream":
        """Create a stream, or the object of an existing one."""
        if existing:
            return super().__new__(cls, **existing)
        return super().__new__(cls, torch.device(DEVICE_NAME, 0), priority=priority)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Return the lowest and the highest priority; priorities have no effect."""
        return 0, 0


class Event(torch.Event):
    """An event of the device; takes the arguments of `torch.cuda.Event` and ignores them."""

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
    """Return the stream that is current by default."""
    return _stream(0)


def set_stream(stream: torch.Stream | None) -> None:
    """Make a stream the current one of this thread."""
    if stream is not None:
        native().set_stream(stream.stream_id)


class StreamContext:
    """Context in which a stream is the current one of this thread; None changes nothing.

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
    """Return the context in which a stream is the current one."""
    return StreamContext(stream)


@contextmanager
def device(device: Any = None) -> Iterator[None]:
    """Do nothing: there is one device."""
    yield


class CUDAGraph:
    """A CUDA graph of the device: captured tasks, which each replay launches again.

    A replay uses the memory and the numbers of the capture; host code between the tasks does not run again. The methods
    have the arguments of `torch.cuda.CUDAGraph`.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        self._graph: NativeGraph | None = None
        self._pool = 0

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        """Begin to capture the current stream, with a memory pool of its own or a shared one."""
        self._pool = (pool or graph_pool_handle())[1]
        self._graph = native().Graph(self._pool)
        native().begin_capture(self._graph)

    def capture_end(self) -> None:
        """End the capture."""
        native().end_capture()

    def replay(self) -> None:
        """Launch all tasks on the current stream.

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
        """Return the handle of the memory pool, to share it with graphs that never overlap in time."""
        return (0, self._pool)


class graph:
    """Context in which a graph captures launches, on a new stream or a given one."""

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
    """Return the handle of a new memory pool for graphs."""
    return (0, next(_POOLS))


def is_current_stream_capturing() -> bool:
    """Return whether the current stream is being captured."""
    return native().captures()


def synchronize(device: Any = None) -> None:
    """Wait for all streams."""
    native().synchronize()


def is_available() -> bool:
    """Return True: the simulated device exists."""
    return True


def is_initialized() -> bool:
    """Return True: the device is ready once it is registered."""
    return True


def device_count() -> int:
    """Return the number of devices, 1."""
    return 1


def current_device() -> int:
    """Return the index of the only device, 0."""
    return 0


def set_device(device: Any) -> None:
    """Do nothing: there is one device."""


def get_device_name(device: Any = None) -> str:
    """Return the name of the device."""
    return "simulated device"


def empty_cache() -> None:
    """Do nothing: see `DeviceMemory::emptyCache`."""


def manual_seed(seed: int) -> None:
    """Seed the default generator."""
    native().default_generator().manual_seed(seed)


manual_seed_all = manual_seed


def get_rng_state(device: Any = None) -> torch.Tensor:
    """Return the state of the default generator."""
    return native().default_generator().get_state()


def set_rng_state(new_state: torch.Tensor, device: Any = None) -> None:
    """Set the state of the default generator."""
    native().default_generator().set_state(new_state)


def memory_allocated(device: Any = None) -> int:
    """Return the number of device bytes in use."""
    return torch.accelerator.memory_allocated()


def max_memory_allocated(device: Any = None) -> int:
    """Return the largest number of device bytes in use so far."""
    return torch.accelerator.max_memory_allocated()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Return the free and the total bytes of the device."""
    return torch.accelerator.get_memory_info()


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the dtypes that automatic mixed precision may choose."""
    return [torch.bfloat16, torch.float16, torch.float32]


def _is_in_bad_fork() -> bool:
    return False


def _lazy_init() -> None:
    """Do nothing: the device is ready when it is registered."""

"""The module `torch.sim`: what PyTorch and its users ask of a device by name, as they ask `torch.cuda`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from workers.targets.simulated_torch.library import native

DEVICE_NAME = "sim"
# The number of PyTorch's device type PrivateUse1, of which the device is the one.
_DEVICE_TYPE = 20


class Stream(torch.Stream):
    """A stream of the device; made with the arguments of `torch.cuda.Stream`."""

    def __new__(cls, device: Any = None, priority: int = 0, **existing: int) -> "Stream":
        """Make a stream, or the object of an existing one."""
        if existing:
            return super().__new__(cls, **existing)
        return super().__new__(cls, torch.device(DEVICE_NAME, 0), priority=priority)


class Event(torch.Event):
    """An event of the device; made with the arguments of `torch.cuda.Event`, none of which makes a difference."""

    def __new__(
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> "Event":
        """Make an event."""
        return super().__new__(cls, torch.device(DEVICE_NAME, 0), enable_timing=enable_timing)


def _stream(index: int) -> Stream:
    return Stream(stream_id=index, device_index=0, device_type=_DEVICE_TYPE)


def current_stream(device: Any = None) -> Stream:
    """Return the current stream of this thread."""
    return _stream(native().current_stream())


def default_stream(device: Any = None) -> Stream:
    """Return the stream that is current unless another is set."""
    return _stream(0)


def set_stream(stream: torch.Stream | None) -> None:
    """Make a stream the current one of this thread."""
    if stream is not None:
        native().set_stream(stream.stream_id)


@contextmanager
def stream(stream: torch.Stream | None) -> Iterator[None]:
    """Let a stream be the current one for a while; None changes nothing."""
    if stream is None:
        yield
        return
    before = native().set_stream(stream.stream_id)
    try:
        yield
    finally:
        native().set_stream(before)


def synchronize(device: Any = None) -> None:
    """Wait for all streams."""
    native().synchronize()


def is_available() -> bool:
    """Tell that there is a device."""
    return True


def is_initialized() -> bool:
    """Tell that it is ready."""
    return True


def device_count() -> int:
    """Return how many there are."""
    return 1


def current_device() -> int:
    """Return the number of the one that there is."""
    return 0


def set_device(device: Any) -> None:
    """Change nothing: there is one."""


def get_device_name(device: Any = None) -> str:
    """Return its name."""
    return "simulated device"


def empty_cache() -> None:
    """Change nothing: see `DeviceMemory::emptyCache`."""


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
    """Return how many bytes of the device are in use."""
    return torch.accelerator.memory_allocated()


def max_memory_allocated(device: Any = None) -> int:
    """Return how many bytes of the device were in use at most."""
    return torch.accelerator.max_memory_allocated()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Return how many bytes of the device are free, and how many there are."""
    return torch.accelerator.get_memory_info()


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the dtypes that automatic mixed precision may choose."""
    return [torch.bfloat16, torch.float16, torch.float32]


def _is_in_bad_fork() -> bool:
    return False


def _lazy_init() -> None:
    """Do nothing: the device is ready when it is registered."""

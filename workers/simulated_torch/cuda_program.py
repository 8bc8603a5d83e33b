"""Runs a program written for "cuda" on the simulated device."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from workers.simulated_torch.backend import DEVICE_NAME
from workers.simulated_torch.device import cuda_names

# Functions of torch.cuda that programs call, apart from streams and events.
_QUESTIONS = (
    "is_available",
    "is_initialized",
    "device_count",
    "current_device",
    "set_device",
    "get_device_name",
    "empty_cache",
    "manual_seed",
    "manual_seed_all",
    "get_rng_state",
    "set_rng_state",
    "memory_allocated",
    "max_memory_allocated",
    "mem_get_info",
)


class _OnDevice(TorchFunctionMode):
    """Replaces "cuda" by the simulated device in the arguments of PyTorch calls."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        placed = {name: _placed(value) for name, value in (kwargs or {}).items()}
        if func is torch.Tensor.cuda:
            non_blocking = placed.get("non_blocking", len(args) > 2 and args[2])
            return args[0].to(DEVICE_NAME, non_blocking=non_blocking)
        return func(*map(_placed, args), **placed)


def _placed(value: Any) -> Any:
    """Return an argument with "cuda" (or such a device) replaced by the simulated device."""
    if isinstance(value, torch.device):
        return torch.device(DEVICE_NAME, 0) if value.type == "cuda" else value
    is_name = isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))
    return DEVICE_NAME if is_name else value


@contextmanager
def cuda_program() -> Iterator[None]:
    """Make "cuda" and `torch.cuda` refer to the simulated device, in this context and thread."""
    with cuda_names(_QUESTIONS), _OnDevice():
        yield

"""Definitions of Triton kernels: NumPy code that a task runs instead of the kernel.

A definition was compared with its interpreted kernel, and stores the digest of that kernel's source. A kernel with
another source, or that uses other functions or constants, is interpreted. A launch's declared reads and writes are the
kernel's, and its definition can access no other memory.
"""

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from workers.simulated_torch.kernel_accesses import KernelError, called_function

Array: TypeAlias = NDArray[Any]
# The arguments of a launch, as attributes: `Memory` or `Pointers` for the kernel's pointers, otherwise values.
Given: TypeAlias = Any
_DIGITS = 16
_OTHER_SOURCE = "has another source than the kernel that its definition was compared with"


class Memory:
    """Memory at a kernel's pointer; indexes count from the pointer, and others raise."""

    __slots__ = ("_size", "array")

    def __init__(self, array: Array) -> None:
        self.array, self._size = array, len(array)

    def __getitem__(self, at: int) -> Any:
        if not 0 <= at < self._size:
            raise self._outside(at)
        return self.array.item(at)

    def __setitem__(self, at: int, value: Any) -> None:
        if not 0 <= at < self._size:
            raise self._outside(at)
        try:
            self.array[at] = value
        except OverflowError:
            self.array[at] = np.int64(value).astype(self.array.dtype)

    def span(self, first: int, count: int) -> Array:
        """Return a view of `count` values from index `first` on."""
        if count <= 0:
            return self.array[:0]
        if not 0 <= first <= self._size - count:
            raise self._outside(first)
        return self.array[first : first + count]

    def rows(self, first: int, shape: tuple[int, int], strides: tuple[int, int]) -> Array:
        """Return a 2-D view of values from index `first` on, with strides.

        `strides` are in values, from row to row and from value to value.
        """
        if 0 in shape:
            return np.empty(shape, self.array.dtype)
        last = first + sum((count - 1) * stride for count, stride in zip(shape, strides, strict=True))
        if not 0 <= first <= last < self._size:
            raise self._outside(first if first < 0 else last)
        size = self.array.itemsize
        return np.ndarray(shape, self.array.dtype, self.array, first * size, (strides[0] * size, strides[1] * size))

    def at(self, places: Array) -> Array:
        """Return the values at these indexes."""
        self._check(places)
        return self.array[places]

    def put(self, places: Array, values: Any) -> None:
        """Store values at these indexes; if an index occurs twice, the last value counts."""
        self._check(places)
        self.array[places] = values

    def _check(self, places: Array) -> None:
        if not len(places):
            return
        least, most = int(places.min()), int(places.max())
        if least < 0 or most >= self._size:
            raise self._outside(least if least < 0 else most)

    def _outside(self, at: int) -> KernelError:
        return KernelError(f"it uses value {at} of a tensor of {self._size} values")


class Pointers:
    """Table of addresses of a kernel, with the tensors to which they point."""

    __slots__ = ("_addresses", "_targets")

    def __init__(self, addresses: Array, targets: Sequence[torch.Tensor]) -> None:
        self._addresses = Memory(addresses)
        self._targets = sorted(targets, key=torch.Tensor.data_ptr, reverse=True)

    def to(self, at: int, dtype: Any) -> Memory:
        """Return the memory that address number `at` points to, as values of `dtype`.

        If several tensors contain the address (e.g. several states in one block), the one with the largest start is
        taken.
        """
        address = self._addresses[at]
        for target in self._targets:
            ahead = address - target.data_ptr()
            if ahead >= 0 and ahead < (memory := flat(target).view(np.uint8)).size:
                size = np.dtype(dtype).itemsize
                return Memory(memory[ahead : ahead + (memory.size - ahead) // size * size].view(dtype))
        raise KernelError(f"it follows a pointer (number {at}) outside the tensors of the launch")


def flat(tensor: torch.Tensor) -> Array:
    """Return a host tensor's memory as a 1-D array, from its first to its last value."""
    if not tensor.is_contiguous():
        last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        tensor = torch.as_strided(tensor, (1 + last,), (1,))
    found: Array = tensor.numpy()
    return found if found.ndim == 1 else found.reshape(-1)


@dataclass(frozen=True, slots=True)
class Definition:
    """NumPy definition of a kernel, for launches that `covers` accepts.

    `run` receives the grid, and the launch's arguments as attributes. `digest` is the digest of the kernel that it was
    compared with; `others` are definitions for other sources of the kernel.
    """

    run: Callable[[tuple[int, ...], Given], None]
    digest: str
    covers: Callable[[Mapping[str, Any]], bool] = lambda given: True
    others: tuple["Definition", ...] = ()

    def for_source(self, digest: str) -> "Definition | None":
        """Return the definition if the kernel's source has this digest, else None."""
        return next((each for each in (self, *self.others) if each.digest == digest), None)


class Definitions:
    """NumPy definitions by qualified kernel name.

    `launched` maps each kernel that was launched without a definition to the reason.
    """

    def __init__(self, by_name: Mapping[str, Definition]) -> None:
        self._by_name = by_name
        self.launched: dict[str, str] = {}

    def of(self, kernel: Any) -> Definition | None:
        """Return the definition of a kernel, or None if none fits its source."""
        name = name_of(kernel)
        if name not in self._by_name:
            self.launched[name] = "has no definition"
            return None
        found = self._by_name[name].for_source(digest_of(kernel))
        if found is None:
            self.launched[name] = _OTHER_SOURCE
        return found

    def interpreted(self) -> dict[str, str]:
        """Return, by kernel name, why a kernel is interpreted instead of replaced.

        This covers launched kernels, and kernels with another source than their definition.
        """
        reasons = dict(self.launched)
        for name, definition in self._by_name.items():
            kernel = _kernel_named(name)
            if kernel is None:
                reasons[name] = "is missing"
            elif definition.for_source(digest_of(kernel)) is None:
                reasons[name] = _OTHER_SOURCE
        return reasons


def _kernel_named(name: str) -> Any:
    """Import a Triton kernel by its qualified name; return its Python function, or None."""
    module, _, function = name.rpartition(".")
    try:
        kernel = getattr(import_module(module), function, None)
    except ImportError:
        return None
    return function_of(kernel) if hasattr(kernel, "fn") else None


def function_of(kernel: Any) -> Any:
    """Return a Triton kernel's Python function, without wrappers such as the autotuner."""
    while hasattr(kernel, "fn"):
        kernel = kernel.fn
    return kernel


def name_of(kernel: Any) -> str:
    """Return the qualified name of a kernel."""
    return f"{kernel.__module__}.{kernel.__name__}"


def digest_of(kernel: Any) -> str:
    """Return a digest of the sources of a kernel and of all functions and constants it uses."""
    parts = sorted(f"{name}\n{text}" for name, text in _sources(kernel).items())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:_DIGITS]


def functions_used(kernel: Any) -> Collection[str]:
    """Return the qualified names of a kernel's function and of all functions that it calls."""
    return _sources(kernel).keys()


@cache
def _sources(function: Any) -> Mapping[str, str]:
    """Return the sources, without comments, of a kernel and all that it uses, by name."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    found = {name_of(function): ast.unparse(tree)}
    for used in ast.walk(tree):
        if isinstance(used, ast.Name | ast.Attribute):
            called = called_function(function, used)
            if called is not None and called is not function:
                found.update(_sources(called))
    found.update(_constants(function, tree))
    return found


def _constants(function: Any, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield name and value of each module constant that a function uses."""
    for name in sorted({used.id for used in ast.walk(tree) if isinstance(used, ast.Name)}):
        value = function.__globals__.get(name)
        value = getattr(value, "value", value)
        if isinstance(value, bool | int | float | str):
            yield f"{function.__module__}.{name}", repr(value)

"""Launch Triton kernels, or record launches to repeat them without Triton's dispatch.

Dispatch (choosing the compiled kernel for given arguments) takes longer on the host than most of our kernels take on
the device. For the same buffers and integers it gives the same result, so it runs only once. The sentinels of device
buffers are here too, as constants that a kernel may use.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from inspect import signature
from typing import Any, TypeAlias, TypeVar

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.runtime import driver

from workers.kernels import sentinels
from workers.kernels.argument import Arguments

A = TypeVar("A", bound=Arguments)

NO_TOKEN = tl.constexpr(sentinels.NO_TOKEN)
NO_DRAFT = tl.constexpr(sentinels.NO_DRAFT)
PAD_SLOT = tl.constexpr(sentinels.PAD_SLOT)
PAD_ROW = tl.constexpr(sentinels.PAD_ROW)
PAD_BLOCK = tl.constexpr(sentinels.PAD_BLOCK)
PAD_STATE_SLOT = tl.constexpr(sentinels.PAD_STATE_SLOT)
UNKNOWN_TOKEN = tl.constexpr(sentinels.UNKNOWN_TOKEN)
POISON = tl.constexpr(sentinels.POISON)

COLUMNS_MIN = 4
# Kernels for rows of more than LONG_LINE logits have a variant for sizes that are all multiples of UNIT.
UNIT, LONG_LINE = 128, 4096

# Receives a kernel, its grid, its arguments and its options.
Launcher: TypeAlias = Callable[[Any, tuple[int, ...], tuple[Any, ...], dict[str, Any]], None]

_BEING_BOUND: ContextVar[list["Bound"] | None] = ContextVar("being_bound", default=None)
_LAUNCHED_BY: ContextVar[Launcher | None] = ContextVar("launched_by", default=None)


class Bound:
    """One launch of a compiled kernel: grid and arguments, with tensors as addresses."""

    __slots__ = ("_arguments", "_compiled", "_grid", "_run", "_tensors")

    def __init__(self, compiled: Any, grid: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
        self._run = compiled.run
        # The arguments that follow the stream: the function, its metadata, and no hooks.
        self._compiled = (compiled.function, compiled.packed_metadata, None, None, None)
        self._grid = (*grid, 1, 1)[:3]
        self._arguments = tuple(each.data_ptr() if isinstance(each, Tensor) else each for each in arguments)
        # Keeps the tensors alive, because an address is not a reference.
        self._tensors = tuple(each for each in arguments if isinstance(each, Tensor))

    def __call__(self, stream: int) -> None:
        """Enqueue the launch on a CUDA stream."""
        self._run(*self._grid, stream, *self._compiled, *self._arguments)


def kernel(*specialized: str) -> Callable[[Any], Any]:
    """Return a decorator for a Triton kernel that is specialised for some arguments only.

    These are its constants and the `specialized` arguments.

    By default Triton checks at each launch whether an argument is 1, or divisible by 16, and compiles again for each
    new combination. That pays only for long rows, which are then read in larger pieces: compiling a kernel takes as
    long as a thousand steps.
    """

    def made(function: Any) -> Any:
        given = signature(function).parameters.values()
        others = [each.name for each in given if each.annotation is not tl.constexpr and each.name not in specialized]
        assert {each.name for each in given} >= set(specialized), f"{function.__name__} lacks one of {specialized}"
        addresses = [name for name in others if name.startswith("p_")]
        numbers = [name for name in others if name not in addresses]
        return triton.jit(function, do_not_specialize=numbers, do_not_specialize_on_alignment=addresses)

    return made


# An overlapping kernel begins before the preceding kernel on its stream has ended, if that one allows it. Until it
# waits, it must not touch memory that other kernels use. Supported from Hopper on ("programmatic dependent launch").
OVERLAPPING_ARCH = 90


@cache
def can_overlap() -> bool:
    """Return whether the device can begin a kernel before the preceding one has ended."""
    if triton.knobs.runtime.interpret:
        return False
    target = driver.active.get_current_target()
    return bool(target.backend == "cuda" and target.arch >= OVERLAPPING_ARCH)


@triton.jit
def let_next_begin(OVERLAPS: tl.constexpr):
    """Let the next kernel of the stream begin before this one ends, if the GPU can overlap them.

    It waits itself for what this kernel writes.
    """
    if OVERLAPS:
        gdc_launch_dependents()


@triton.jit
def wait_for_others(OVERLAPS: tl.constexpr):
    """Wait until all preceding kernels on the stream have ended and their writes are visible.

    Every program must call it.
    """
    if OVERLAPS:
        gdc_wait()


def padded_columns(width: int) -> int:
    """Return the power of two for `width` columns; few sizes, because each is compiled.

    There are few sizes, because each compiles a kernel.
    """
    size: int = triton.next_power_of_2(max(width, COLUMNS_MIN))
    return size


def length_unit(vocab_size: int, *strides: int) -> int:
    """Return the number that divides all row lengths: UNIT if rows are long, else 1."""
    is_long = vocab_size > LONG_LINE and all(size % UNIT == 0 for size in (vocab_size, *strides))
    return UNIT if is_long else 1


def check_flat(*buffers: Tensor) -> None:
    """Raise unless all buffers are flat and contiguous: a kernel gets only their address.

    Raises:
        ValueError: a buffer is not flat, or a slice with a step.
    """
    for buffer in buffers:
        if buffer.dim() != 1 or not buffer.is_contiguous():
            found = f"shape {tuple(buffer.shape)} and strides {buffer.stride()}"
            raise ValueError(f"a device op takes flat, contiguous buffers, not {found}")


def launch(kernel: Any, grid: tuple[int, ...]) -> Callable[..., None]:
    """Return a launcher of a kernel on a grid; it takes the kernel's parameters by position.

    It raises if a buffer is not flat; see `check_flat`.
    """

    def call(*arguments: Any, **options: Any) -> None:
        check_flat(*(each for each in arguments if isinstance(each, Tensor)))
        # Fused multiply-add would round differently from the definition, and lanes of a warp that add each other's
        # products would get different sums.
        options = {"enable_fp_fusion": False, **options}
        launched_by = _LAUNCHED_BY.get()
        if launched_by is not None:
            launched_by(kernel, grid, arguments, options)
            return
        compiled = kernel[grid](*arguments, **options)
        being_bound = _BEING_BOUND.get()
        if being_bound is not None:
            being_bound.append(Bound(compiled, grid, arguments))

    return call


def hash_in_order(modules: Iterable[str]) -> None:
    """Make Triton hash the kernels of `modules` in an order independent of launches.

    In Triton 3.6 the hash that identifies a kernel in the cache depends on what was hashed before: the constants of a
    called function are included only if that function was hashed earlier. Processes with other launch orders would all
    recompile.
    """
    for module in sorted(modules):
        for _, each in sorted(vars(import_module(module)).items()):
            if isinstance(each, triton.JITFunction):
                assert each.cache_key, f"{module}: a kernel has no hash"


@contextmanager
def launched_by(launcher: Launcher) -> Iterator[None]:
    """Pass all launches inside the `with` block to `launcher` instead of the device."""
    token = _LAUNCHED_BY.set(launcher)
    try:
        yield
    finally:
        _LAUNCHED_BY.reset(token)


def launches_of(op: Callable[[A], None], arguments: A) -> list[Bound]:
    """Run an op and return the kernel launches that it makes, for repeated use.

    The tensors must stay at their addresses as long as the launches are used. Only for a GPU: an interpreted kernel is
    never compiled.
    """
    bound: list[Bound] = []
    token = _BEING_BOUND.set(bound)
    try:
        op(arguments)
    finally:
        _BEING_BOUND.reset(token)
    return bound


def bind(op: Callable[[A], None], arguments: A) -> list[Bound]:
    """Return the kernel launches of an op that does nothing else; see `launches_of`."""
    bound = launches_of(op, arguments)
    assert bound, f"op {getattr(op, '__name__', op)} launched no kernel"
    return bound


def current_stream() -> int:
    """Return the handle of PyTorch's current CUDA stream."""
    handle: int = torch.cuda.current_stream().cuda_stream
    return handle

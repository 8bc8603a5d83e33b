"""Launch kernels, and bind a call of an op to its memory so that it can be launched again without Triton's dispatch.

Dispatch (which compiled kernel fits these arguments) takes the host longer than most of our kernels take the device.
For the same buffers and integers its answer is the same, so it is asked once.
The sentinels of device buffers are here too, as constants that a kernel may name.
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
# Kernels of lines longer than LONG_LINE distinguish whether all sizes are multiples of UNIT.
UNIT, LONG_LINE = 128, 4096

# Takes a kernel, its grid, arguments and options.
Launcher: TypeAlias = Callable[[Any, tuple[int, ...], tuple[Any, ...], dict[str, Any]], None]

_BEING_BOUND: ContextVar[list["Bound"] | None] = ContextVar("being_bound", default=None)
_LAUNCHED_BY: ContextVar[Launcher | None] = ContextVar("launched_by", default=None)


class Bound:
    """One launch of a compiled kernel: its grid and arguments, tensors by their address."""

    __slots__ = ("_arguments", "_compiled", "_grid", "_run", "_tensors")

    def __init__(self, compiled: Any, grid: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
        self._run = compiled.run
        # Behind the stream: the function, its metadata, and no hooks.
        self._compiled = (compiled.function, compiled.packed_metadata, None, None, None)
        self._grid = (*grid, 1, 1)[:3]
        self._arguments = tuple(each.data_ptr() if isinstance(each, Tensor) else each for each in arguments)
        # Kept alive here: an address is no reference.
        self._tensors = tuple(each for each in arguments if isinstance(each, Tensor))

    def __call__(self, stream: int) -> None:
        """Enqueue the launch on a stream."""
        self._run(*self._grid, stream, *self._compiled, *self._arguments)


def kernel(*specialized: str) -> Callable[[Any], Any]:
    """Return a decorator that makes a kernel, compiled for its constants and its `specialized` arguments.

    Of everything else Triton would ask at each launch whether it is 1, or an address or a number divisible by 16, and
    compile again for each new answer. That pays for long lines, which are then read in larger pieces, and for nothing
    else: to compile a kernel takes as long as a thousand steps.
    """

    def made(function: Any) -> Any:
        given = signature(function).parameters.values()
        others = [each.name for each in given if each.annotation is not tl.constexpr and each.name not in specialized]
        assert {each.name for each in given} >= set(specialized), f"{function.__name__} does not take all {specialized}"
        addresses = [name for name in others if name.startswith("p_")]
        numbers = [name for name in others if name not in addresses]
        return triton.jit(function, do_not_specialize=numbers, do_not_specialize_on_alignment=addresses)

    return made


# A kernel that overlaps begins before the one ahead of it on its stream has ended, if that one lets it: until it waits
# it must share no memory with others. Hopper is the first that can ("programmatic dependent launch").
OVERLAPPING_ARCH = 90


@cache
def can_overlap() -> bool:
    """Tell whether the device lets a kernel begin before the one ahead of it has ended."""
    if triton.knobs.runtime.interpret:
        return False
    target = driver.active.get_current_target()
    return bool(target.backend == "cuda" and target.arch >= OVERLAPPING_ARCH)


@triton.jit
def let_next_begin(OVERLAPS: tl.constexpr):
    """Let the next kernel on the stream begin, if it overlaps; it waits for what this one writes."""
    if OVERLAPS:
        gdc_launch_dependents()


@triton.jit
def wait_for_others(OVERLAPS: tl.constexpr):
    """Wait until all kernels ahead on the stream have ended and their writes are seen. Every program must."""
    if OVERLAPS:
        gdc_wait()


def columns_of(width: int) -> int:
    """Return the size of a block that holds `width` columns: one of few, for each makes a kernel of its own."""
    size: int = triton.next_power_of_2(max(width, COLUMNS_MIN))
    return size


def unit_of(vocab_size: int, *strides: int) -> int:
    """Return the unit of the sizes of lines: 1, or UNIT where longer pieces can be read at once."""
    is_long = vocab_size > LONG_LINE and all(size % UNIT == 0 for size in (vocab_size, *strides))
    return UNIT if is_long else 1


def check_flat(*buffers: Tensor) -> None:
    """Refuse buffers whose elements do not follow one another: a kernel sees the first address alone.

    Raises:
        ValueError: a buffer is not flat, or a slice with a step.
    """
    for buffer in buffers:
        if buffer.dim() != 1 or not buffer.is_contiguous():
            found = f"shape {tuple(buffer.shape)} and strides {buffer.stride()}"
            raise ValueError(f"a device op takes flat, contiguous buffers, not {found}")


def launch(kernel: Any, grid: tuple[int, ...]) -> Callable[..., None]:
    """Return a launcher of a kernel on a grid, which takes every parameter of the kernel by position.

    It refuses buffers that are not flat; see `check_flat`.
    """

    def call(*arguments: Any, **options: Any) -> None:
        check_flat(*(each for each in arguments if isinstance(each, Tensor)))
        # A product that is added before it is rounded is not the definition's, and lanes of a warp that add up each
        # other's products would come to sums of their own.
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
    """Let Triton hash the kernels of some modules in one order, whatever is launched first.

    In Triton 3.6 the hash of a kernel, by which its cache knows it, depends on what was hashed before: a function that
    it calls comes with its constants only if it was. Processes that launch in different orders would all compile.
    """
    for module in sorted(modules):
        for _, each in sorted(vars(import_module(module)).items()):
            if isinstance(each, triton.JITFunction):
                assert each.cache_key, f"{module} has a kernel without a hash"


@contextmanager
def launched_by(launcher: Launcher) -> Iterator[None]:
    """Pass launches to a launcher of the caller's meanwhile."""
    token = _LAUNCHED_BY.set(launcher)
    try:
        yield
    finally:
        _LAUNCHED_BY.reset(token)


def launches_of(op: Callable[[A], None], arguments: A) -> list[Bound]:
    """Run an op, and return the kernels that it launched.

    The tensors must live where they are as long as the launches are used. Only for a GPU: an interpreted kernel is
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
    """Run an op whose work is kernel launches alone, and return those launches; see `launches_of`."""
    bound = launches_of(op, arguments)
    assert bound, f"op {getattr(op, '__name__', op)} launched no kernel"
    return bound


def current_stream() -> int:
    """Return the handle of PyTorch's current stream."""
    handle: int = torch.cuda.current_stream().cuda_stream
    return handle

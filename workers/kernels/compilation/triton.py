"""Compilation of kernels ahead of their first launch: list the variants that launches need, and compile them.

A variant is a kernel with everything that it is compiled for: types, which addresses and numbers are divisible by 16,
constants, options. What Triton's own dispatch asks its compiler for is written down, and given to the compiler later,
in any process; what it makes lies in Triton's cache, where the first launch finds it.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

from torch import Tensor
from triton import knobs
from triton.backends.nvidia.driver import CudaDriver
from triton.runtime import driver

from workers.kernels.argument import Arguments
from workers.kernels.launch.triton import launched_by

A = TypeVar("A", bound=Arguments)

# An address is divisible by this, or it is not.
_DIVISOR = 16


class Variant(NamedTuple):
    """A kernel of a module, and what it is compiled for, as Triton writes that down."""

    module: str
    name: str
    specialization: str


class Variants:
    """The variants that launches need, each once."""

    def __init__(self) -> None:
        self.found: set[Variant] = set()
        self._known: set[Any] = set()

    def add(self, op: Callable[[A], None], arguments: A) -> None:
        """Add the variants of the kernels that an op launches, without launching them."""
        with launched_by(self._list), knobs.runtime.scope():
            # Where this hook prevents the compilation, Triton launches nothing either.
            knobs.runtime.jit_cache_hook = self._asked
            op(arguments)

    def _list(self, kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        seen = (_as_seen(each) for each in (*arguments, *options.items()))
        call = (kernel, *seen)
        if call not in self._known:
            self._known.add(call)
            kernel.warmup(*arguments, grid=grid, **options)

    def _asked(self, *, fn: Any, compile: dict[str, Any], **_: Any) -> bool:
        self.found.add(Variant(fn.module, fn.name, compile["specialization_data"]))
        return True


def _as_seen(argument: Any) -> Any:
    """Return the properties of an argument that dispatch may depend on."""
    return (argument.dtype, argument.data_ptr() % _DIVISOR) if isinstance(argument, Tensor) else argument


def compile_variant(variant: Variant) -> None:
    """Compile a variant into Triton's cache, and its launcher where Triton compiles that too."""
    compiled = getattr(import_module(variant.module), variant.name).preload(variant.specialization)
    driver.active.launcher_cls(compiled.src, compiled.metadata)


def let_go_of_device() -> None:
    """Let this process, and those that are forked from it, compile for the current GPU without asking it again."""
    target, answers = driver.active.get_current_target(), CudaDriver()
    answers.get_current_device = lambda: 0
    answers.get_current_stream = lambda device: device
    answers.get_current_target = lambda: target
    driver.set_active(answers)

"""List the Triton kernel variants that ops launch, and compile them in advance.

A variant is a kernel and everything that it is compiled for: types, whether addresses and numbers are divisible by 16,
constants, options. `Variants` records what Triton's dispatch requests from its compiler. `compile_variant` compiles it
later, in any process, into Triton's cache, where the first launch finds it.
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

# Dispatch depends on whether an address is divisible by this.
_DIVISOR = 16


class Variant(NamedTuple):
    """A kernel with the specialisation that it is compiled for, in Triton's format."""

    module: str
    name: str
    specialization: str


class Variants:
    """The distinct kernel variants that ops would launch."""

    def __init__(self) -> None:
        self.found: set[Variant] = set()
        self._known: set[Any] = set()

    def add(self, op: Callable[[A], None], arguments: A) -> None:
        """Add the variants of the kernels that an op would launch, without launching them."""
        with launched_by(self._list), knobs.runtime.scope():
            # Triton launches nothing if this hook prevents the compilation.
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
    """Return the properties of a launch argument on which Triton's choice of variant depends."""
    return (argument.dtype, argument.data_ptr() % _DIVISOR) if isinstance(argument, Tensor) else argument


def compile_variant(variant: Variant) -> None:
    """Compile a variant into Triton's cache, including its launcher if Triton compiles one."""
    compiled = getattr(import_module(variant.module), variant.name).preload(variant.specialization)
    driver.active.launcher_cls(compiled.src, compiled.metadata)


def detach_driver() -> None:
    """Make Triton compile for the current GPU without using its driver, also in child processes."""
    target, answers = driver.active.get_current_target(), CudaDriver()
    answers.get_current_device = lambda: 0
    answers.get_current_stream = lambda device: device
    answers.get_current_target = lambda: target
    driver.set_active(answers)

"""Make Triton launches device tasks, which interpret the kernel or run its NumPy definition.

Triton must be set to interpret before its import (`TRITON_INTERPRET`). `queued` and `CHECKED` then replace the
interpreter's launcher and its memory accesses.

The reads and writes of a launch are whole tensors, derived from the kernel's source (`kernel_accesses`). The
interpreter's loads and stores are checked against them: an access to undeclared memory is an error instead of a missed
race.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import torch

from workers.simulated_torch.device import activate
from workers.simulated_torch.kernel_accesses import KernelError, Root, accesses_of
from workers.simulated_torch.kernel_definitions import Definition, Definitions, Memory, Pointers, flat

# Attribute of a tensor of pointers: the tensors that they refer to.
_POINTED_TO = "_pointed_to"
_POINTERS = torch.uint64
_NO_MEMORY = np.zeros(0, dtype=np.uint8)

Spans = list[tuple[int, int]]


class Bounds:
    """Memory ranges that the running kernel may load from and store to.

    Without a running kernel, every access is allowed.
    """

    def __init__(self) -> None:
        self._kernel = ""
        self._loads: Spans | None = None
        self._stores: Spans | None = None

    @contextmanager
    def within(self, kernel: str, loads: Spans, stores: Spans) -> Iterator[None]:
        """Check each access of a kernel against these byte ranges, in this context."""
        self._kernel, self._loads, self._stores = kernel, loads, stores
        try:
            yield
        finally:
            self._loads = self._stores = None

    def check(self, addresses: Any, mask: Any, size: int, is_store: bool) -> None:
        """Raise if an access is outside the byte ranges that the launch declared.

        Raises:
            KernelError: an address is outside.
        """
        spans = self._stores if is_store else self._loads
        if spans is None:
            return
        touched = addresses[mask]
        if not touched.size:
            return
        low, high = int(touched.min()), int(touched.max()) + size
        if any(first <= low and high <= last for first, last in spans):
            return
        for address in map(int, np.unique(touched)):
            if not any(first <= address and address + size <= last for first, last in spans):
                raise KernelError(_outside(self._kernel, address, spans, is_store))


def _outside(kernel: str, address: int, spans: Spans, is_store: bool) -> str:
    """Return the message for an access outside the declared ranges."""
    how = "stores to" if is_store else "loads from"
    nearest = min(spans, key=lambda span: min(abs(address - span[0]), abs(address - span[1])), default=None)
    if nearest is None:
        return f"{kernel} {how} memory, which its source does not do"
    first, last = nearest
    return f"{kernel} {how} byte {address - first} of {last - first} of its tensor"


# One kernel runs at a time in a process.
BOUNDS = Bounds()


def launches_as_tasks(
    definitions: Definitions, launched: Callable[[Any], None] = lambda kernel: None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a wrapper of `InterpretedFunction.run` by which launches become device tasks.

    It replaces `InterpretedFunction.run`, and applies to launches with tensors of the device. A kernel with a
    definition runs as its definition. `launched` is called with each kernel, as a Python function: if it wrapped this
    launcher instead, reports would name its source line.
    """
    from triton.runtime.interpreter import GridExecutor  # noqa: PLC0415  Triton reads TRITON_INTERPRET at import

    class Executor(GridExecutor):  # type: ignore[misc]
        """Runs a kernel on host tensors in place; Triton's own executor copies them."""

        def _init_args_hst(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
            return args, kwargs

        def _restore_args_dev(self, *arguments: Any) -> None:
            pass

    kernels: dict[Any, _Kernel] = {}

    def made(launch_at_once: Callable[..., Any]) -> Callable[..., Any]:
        def run(self: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
            launched(self.fn)
            kernel = kernels.get(self.fn)
            if kernel is None:
                kernel = kernels[self.fn] = _Kernel(self.fn, definitions)
            given = kernel.given(arguments, options)
            if not any(_on_device(value) for value in given.values()):
                return launch_at_once(self, *arguments, grid=grid, warmup=warmup, **options)
            if warmup:
                return None
            # The host computes the grid at the launch; it may modify this copy of the arguments.
            programs = grid(dict(given)) if callable(grid) else grid
            kernel.launch(
                programs, given, lambda: Executor(self.rewrite(), self.arg_names, programs, self.pre_run_hooks)
            )
            return None

        return run

    return made


class DefinedKernel:
    """A kernel in a process without Triton: only its NumPy definition can run.

    Arguments that have neither a value nor a default are computed by `found` from the given arguments, by name.
    """

    def __init__(
        self, definitions: Definitions, found: Mapping[str, Callable[[Mapping[str, Any]], Any]], function: Any
    ) -> None:
        self._kernel, self._found = _Kernel(function, definitions), found

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return partial(self._launch, grid)

    def _launch(self, grid: Any, *arguments: Any, **options: Any) -> None:
        given = self._kernel.given(arguments, options, self._found)
        self._kernel.launch(grid(dict(given)) if callable(grid) else grid, given, self._executor)

    def _executor(self) -> Callable[..., None]:
        raise KernelError(
            f"{self._kernel.name} cannot run: Triton is not installed, and no definition covers this launch"
        )


def remember_pointers(table: torch.Tensor, tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    """Attach to a tensor of addresses the tensors that they point to; return it."""
    setattr(table, _POINTED_TO, tuple(tensors))
    return table


def pointed_to(table: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the tensors that `remember_pointers` attached to a table of addresses."""
    found: tuple[torch.Tensor, ...] = getattr(table, _POINTED_TO)
    return found


def _on_device(value: Any) -> bool:
    # A process has one device apart from the host.
    return isinstance(value, torch.Tensor) and not value.is_cpu


class _Kernel:
    """A kernel: its parameters, those that it reads and writes, and its NumPy definition."""

    def __init__(self, function: Any, definitions: Definitions) -> None:
        self.name: str = function.__name__
        parameters = inspect.signature(function).parameters
        self._names = tuple(parameters)
        empty = inspect.Parameter.empty
        self._defaults = {name: each.default for name, each in parameters.items() if each.default is not empty}
        accesses = accesses_of(function)
        self._reads, self._writes = sorted(accesses.reads), sorted(accesses.writes)
        self._written = {root.argument for root in accesses.writes if not root.is_loaded}
        self._used = self._written | {root.argument for root in accesses.reads}
        self._followed = {root.argument for root in accesses.reads | accesses.writes if root.is_loaded}
        self._definition = definitions.of(function)

    def given(
        self,
        arguments: tuple[Any, ...],
        options: dict[str, Any],
        found: Mapping[str, Callable[[Mapping[str, Any]], Any]] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """Return the arguments of a launch by name, without compiler options such as `num_warps`.

        `found` computes missing arguments from the others.
        """
        given = dict(zip(self._names, arguments, strict=False))
        for name in self._names[len(arguments) :]:
            if name in options:
                given[name] = options[name]
            else:
                given[name] = found[name](options) if name in found else self._defaults[name]
        return given

    def launch(
        self, programs: tuple[int, ...], given: dict[str, Any], executor: Callable[[], Callable[..., None]]
    ) -> None:
        """Enqueue a task that runs the kernel's NumPy definition, or interprets the kernel.

        If the definition does not cover the launch, the task interprets the kernel with `executor`.
        """
        tensors = {name: value for name, value in given.items() if _on_device(value)}
        reads, writes = (self._touched(roots, given, tensors) for roots in (self._reads, self._writes))
        if self._definition is not None and self._definition.covers(given):
            task = self._defined(self._definition, programs, given, tensors)
        else:
            task = self._interpreted(executor(), given, tensors, _spans(reads), _spans(writes))
        activate().launch(self.name, task, reads, writes)

    def _touched(
        self, roots: Iterable[Root], given: dict[str, Any], tensors: dict[str, torch.Tensor]
    ) -> list[torch.Tensor]:
        """Return the tensors of pointer arguments; for a table of addresses, what it points to."""
        found: list[torch.Tensor] = []
        for root in roots:
            value = tensors.get(root.argument)
            if value is None:
                if isinstance(given.get(root.argument), torch.Tensor):
                    raise KernelError(f"{self.name} receives {root.argument}, which is host memory")
            elif not root.is_loaded:
                found.append(value)
            elif hasattr(value, _POINTED_TO):
                found += pointed_to(value)
            # Values loaded from other tensors are not pointers: this launch does not take the branch that follows them.
            elif value.dtype == _POINTERS:
                raise KernelError(
                    f"{self.name} follows pointers of {root.argument}, which were not registered with remember_pointers"
                )
        return [tensor for tensor in found if tensor.numel()]

    def _interpreted(
        self,
        executor: Callable[..., None],
        given: dict[str, Any],
        tensors: dict[str, torch.Tensor],
        loads: Spans,
        stores: Spans,
    ) -> Callable[[], None]:
        """Return a task that interprets the kernel, with its accesses checked."""
        view = activate().host_view
        arguments = given | {name: view(tensor) for name, tensor in tensors.items()}

        def interpret() -> None:
            with BOUNDS.within(self.name, loads, stores):
                executor(**arguments)

        return interpret

    def _defined(
        self, definition: Definition, programs: tuple[int, ...], given: dict[str, Any], tensors: dict[str, torch.Tensor]
    ) -> Callable[[], None]:
        """Return a task that runs the NumPy definition on the tensors of a launch."""
        view = activate().host_view
        launch = SimpleNamespace(**given)
        arguments = vars(launch)
        for name, tensor in tensors.items():
            memory = flat(view(tensor)) if name in self._used else _NO_MEMORY
            if name not in self._written:
                memory.flags.writeable = False
            arguments[name] = Memory(memory)
            if name in self._followed and hasattr(tensor, _POINTED_TO):
                arguments[name] = Pointers(memory, [view(each) for each in pointed_to(tensor)])

        def run() -> None:
            try:
                definition.run(programs, launch)
            except KernelError as error:
                raise KernelError(f"{self.name}: {error}") from error

        return run


def _spans(tensors: Iterable[torch.Tensor]) -> Spans:
    """Return the address range of each tensor, from its first to its last value."""
    spans = []
    for tensor in tensors:
        sizes = zip(tensor.shape, tensor.stride(), strict=True)
        last = 1 + sum((size - 1) * stride for size, stride in sizes)
        spans.append((tensor.data_ptr(), tensor.data_ptr() + last * tensor.element_size()))
    return spans


def _checked(pointers_at: int, mask_at: int, is_store: bool) -> Callable[..., Any]:
    """Return a wrapper that checks the addresses of an interpreter's load or store.

    `pointers_at` and `mask_at` are the indices of its pointer and mask arguments.
    """

    def made(access: Callable[..., Any]) -> Callable[..., Any]:
        def checked(self: Any, *arguments: Any) -> Any:
            pointers, mask = arguments[pointers_at], arguments[mask_at]
            BOUNDS.check(pointers.data, mask.data.astype(bool), _size(pointers), is_store)
            return access(self, *arguments)

        return checked

    return made


# Checked replacements of the interpreter's accesses to memory, by their names there.
CHECKED = {
    "create_masked_load": _checked(0, 1, is_store=False),
    "create_masked_store": _checked(0, 2, is_store=True),
    "create_atomic_rmw": _checked(1, 3, is_store=True),
}


def _size(pointers: Any) -> int:
    """Return the size in bytes of one value at these pointers."""
    return max(1, int(pointers.get_element_ty().primitive_bitwidth) // 8)

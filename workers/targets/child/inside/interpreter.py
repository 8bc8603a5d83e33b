"""Interpreter for an engine's Triton kernels on a CPU: to be called before anything of the engine is loaded."""

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from workers.simulated_torch.kernel_definitions import Definitions, functions_used
from workers.simulated_torch.triton_tasks import CHECKED, queued
from workers.targets.child.inside.notes import notes_of_process
from workers.targets.child.inside.replacements import Replacement

_INTERPRETER = "triton.runtime.interpreter"


def interpreted(definitions: Definitions) -> tuple[Replacement, ...]:
    """Return what is replaced of the interpreter where a device is simulated, and kernels have definitions."""
    notes = notes_of_process()

    def note_launch(kernel: Any) -> None:
        if notes is not None:
            notes.launched(functions_used(kernel))

    launches = Replacement(
        _INTERPRETER,
        "InterpretedFunction.run",
        "an interpreted kernel would run at once: its launch is a task of the device",
        queued(definitions, note_launch),
    )
    accesses = (
        Replacement(
            _INTERPRETER,
            f"InterpreterBuilder.{name}",
            "what a kernel touches is held against what its launch declared",
            made,
        )
        for name, made in CHECKED.items()
    )
    return (launches, *accesses)


class _Driver:
    @staticmethod
    def is_active() -> bool:
        return True


def interpret() -> None:
    """Have Triton interpret, and builds for CPUs believe that it can: some take none without a backend for them.

    The backend is never asked for anything: what is interpreted is not compiled.
    """
    os.environ["TRITON_INTERPRET"] = "1"
    from triton.backends import backends  # noqa: PLC0415  it reads its environment when it is loaded
    from triton.runtime import interpreter  # noqa: PLC0415

    builder = interpreter.InterpreterBuilder
    builder.create_masked_load = _with_booleans(builder.create_masked_load, mask_at=1)
    builder.create_masked_store = _with_booleans(builder.create_masked_store, mask_at=2)
    backends["cpu"] = SimpleNamespace(driver=_Driver, compiler=None)


def _with_booleans(access: Callable[..., Any], mask_at: int) -> Callable[..., Any]:
    """Return an access of the interpreter, which refuses masks that come of & with a scalar: words of 0 and 1."""

    def checked(self: Any, *arguments: Any) -> Any:
        mask = arguments[mask_at]
        mask.data = mask.data.astype(bool)
        return access(self, *arguments)

    return checked

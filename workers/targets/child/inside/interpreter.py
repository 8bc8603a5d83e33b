"""Run an engine's Triton kernels on a CPU by Triton's interpreter, set up before import."""

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from workers.simulated_torch.kernel_definitions import Definitions, functions_used
from workers.simulated_torch.triton_tasks import CHECKED, launches_as_tasks
from workers.targets.child.inside.notes import notes_of_process
from workers.targets.child.inside.replacements import Replacement

_INTERPRETER = "triton.runtime.interpreter"


def interpreter_replacements(definitions: Definitions) -> tuple[Replacement, ...]:
    """Return replacements in Triton that make each kernel launch a device task.

    A kernel that has a definition runs as that definition instead of being interpreted.
    """
    notes = notes_of_process()

    def note_launch(kernel: Any) -> None:
        if notes is not None:
            notes.launched(functions_used(kernel))

    launches = Replacement(
        _INTERPRETER,
        "InterpretedFunction.run",
        "an interpreted kernel would run immediately: its launch must be a device task",
        launches_as_tasks(definitions, note_launch),
    )
    accesses = (
        Replacement(
            _INTERPRETER,
            f"InterpreterBuilder.{name}",
            "the memory that a kernel accesses is compared with the accesses that its launch declared",
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
    """Make Triton interpret kernels, also in an installation without a backend for CPUs.

    Some engines refuse Triton without a backend for CPUs. The backend that is registered here is never used, because
    interpreted kernels are not compiled.
    """
    os.environ["TRITON_INTERPRET"] = "1"
    from triton.backends import backends  # noqa: PLC0415  Triton reads its environment at import
    from triton.runtime import interpreter  # noqa: PLC0415

    builder = interpreter.InterpreterBuilder
    builder.create_masked_load = _with_booleans(builder.create_masked_load, mask_at=1)
    builder.create_masked_store = _with_booleans(builder.create_masked_store, mask_at=2)
    backends["cpu"] = SimpleNamespace(driver=_Driver, compiler=None)


def _with_booleans(access: Callable[..., Any], mask_at: int) -> Callable[..., Any]:
    """Wrap an interpreter's load or store so that any integer mask becomes a boolean one.

    The interpreter refuses integer masks, which `mask & scalar` produces.
    """

    def checked(self: Any, *arguments: Any) -> Any:
        mask = arguments[mask_at]
        mask.data = mask.data.astype(bool)
        return access(self, *arguments)

    return checked

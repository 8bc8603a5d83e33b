"""Interpreter for an engine's Triton kernels on a CPU: to be called before anything of the engine is loaded."""

import os
from types import SimpleNamespace
from typing import Any

from workers.targets.child.inside.replacements import Replacement
from workers.targets.simulated_torch.triton_tasks import CHECKED, queued

_INTERPRETER = "triton.runtime.interpreter"
# What is replaced of the interpreter where a device is simulated.
INTERPRETED = (
    Replacement(
        _INTERPRETER,
        "InterpretedFunction.run",
        "an interpreted kernel would run at once: its launch is a task of the device",
        queued,
    ),
    *(
        Replacement(
            _INTERPRETER,
            f"InterpreterBuilder.{name}",
            "what a kernel touches is held against what its launch declared",
            made,
        )
        for name, made in CHECKED.items()
    ),
)


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
    load, store = builder.create_masked_load, builder.create_masked_store

    # Masks that come of & with a scalar are words of 0 and 1, which the interpreter refuses here.
    def create_masked_load(self: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
        mask.data = mask.data.astype(bool)
        return load(self, pointers, mask, *rest)

    def create_masked_store(self: Any, pointers: Any, values: Any, mask: Any, *rest: Any) -> Any:
        mask.data = mask.data.astype(bool)
        return store(self, pointers, values, mask, *rest)

    builder.create_masked_load = create_masked_load
    builder.create_masked_store = create_masked_store
    backends["cpu"] = SimpleNamespace(driver=_Driver, compiler=None)

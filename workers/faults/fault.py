"""What a fault is: one function of one engine, replaced by what the historical code did."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from types import SimpleNamespace
from typing import Any

from scenarios.spec import EngineSpec
from workers.engine.parts import Kernel, Parts

Reached = Callable[[], None]


def op_like(kernel: Kernel, body: Callable[[SimpleNamespace], None]) -> Kernel:
    """Return a device op with the name and signature of `kernel` that runs `body` on the arguments by name.

    It computes with NumPy, so a fault made from it exists on the NumPy tier alone.
    """
    names = tuple(signature(kernel).parameters)

    @wraps(kernel)
    def faulty(*arguments: Any) -> None:
        body(SimpleNamespace(**dict(zip(names, arguments, strict=True))))

    return faulty


def run(kernel: Kernel, given: SimpleNamespace, **changes: object) -> None:
    """Run an op on the arguments given, but for some of them."""
    kernel(*{**vars(given), **changes}.values())


@dataclass(frozen=True, slots=True)
class Fault:
    """A bug named after its source; plane and trigger were written down before it was first measured.

    `requires` names fields of the specification and the value each must have for the fault to be possible.
    `apply` takes the parts of an engine and a function to call whenever the faulty path is taken.
    """

    id: str
    source: str
    symptom: str
    trigger: str
    plane: str
    requires: tuple[tuple[str, str | int], ...]
    apply: Callable[[Parts, Reached], Parts]

    def missing(self, spec: EngineSpec) -> str | None:
        """Return what of a specification rules this fault out, if anything does."""
        for key, wanted in self.requires:
            seen = getattr(spec, key)
            if seen != wanted:
                return f"fault {self.id} requires {key} = {wanted}, the trace has {seen}"
        return None

"""Fault: a historical bug, as one function that replaces one part of one engine."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps

from scenarios.spec import EngineSpec
from workers.engine.parts import Kernel, Parts
from workers.lanes.lane import A
from workers.record.evidence import Fact, fact

Reached = Callable[[], None]


def op_like(kernel: Kernel[A], body: Kernel[A]) -> Kernel[A]:
    """Return a device op with the name of `kernel` that runs `body`.

    It computes with NumPy, so a fault made from it exists on the NumPy tier alone.
    """

    @wraps(kernel)
    def faulty(a: A) -> None:
        body(a)

    return faulty


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

    def missing(self, spec: EngineSpec) -> Fact | None:
        """Return the field of a specification that rules this fault out, with what it has to be; None if none does."""
        for key, wanted in self.requires:
            seen = getattr(spec, key)
            if seen != wanted:
                return fact("fault_requires", fault=self.id, key=key, wanted=wanted, seen=seen)
        return None

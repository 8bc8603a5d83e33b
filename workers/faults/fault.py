"""Fault: a historical bug, as one function that replaces one part of one engine."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, update_wrapper, wraps
from typing import Any, Concatenate, TypeAlias

from scenarios.spec import EngineSpec
from workers.engine.parts import Kernel, Parts
from workers.lanes.lane import A
from workers.record.evidence import Fact, fact

Reached = Callable[[], None]
Apply: TypeAlias = Callable[[Parts, Reached], Parts]
Requires: TypeAlias = tuple[tuple[str, str | int], ...]
# Takes the parts that it was made from, and what to call where it goes wrong, before what the part takes.
Faulty: TypeAlias = Callable[Concatenate[Parts, Reached, ...], Any]


def op_like(kernel: Kernel[A], body: Kernel[A]) -> Kernel[A]:
    """Return a device op with the name of `kernel` that runs `body`.

    It computes with NumPy, so a fault made from it exists on the NumPy tier alone.
    """

    @wraps(kernel)
    def faulty(a: A) -> None:
        body(a)

    return faulty


def in_place_of(name: str) -> Callable[[Faulty], Apply]:
    """Return a decorator of a function that stands in place of the part `name`: it makes the fault's `apply` of it.

    What stands in place of a device op has its name and computes with NumPy, as in `op_like`.
    """

    def decorate(faulty: Faulty) -> Apply:
        def apply(parts: Parts, reached: Reached) -> Parts:
            made = update_wrapper(partial(faulty, parts, reached), getattr(parts, name))
            return replace(parts, **{name: made})

        return apply

    return decorate


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
    apply: Apply
    requires: Requires = ()

    def missing(self, spec: EngineSpec) -> Fact | None:
        """Return the field of a specification that rules this fault out, with what it has to be; None if none does."""
        for key, wanted in self.requires:
            seen = getattr(spec, key)
            if seen != wanted:
                return fact("fault_requires", fault=self.id, key=key, wanted=wanted, seen=seen)
        return None


def fault(
    *, id: str, source: str, symptom: str, trigger: str, plane: str, requires: Requires = ()
) -> Callable[[Apply], Fault]:
    """Return a decorator that makes a fault of its `apply`, below what is known of it."""
    return lambda apply: Fault(id, source, symptom, trigger, plane, apply, requires)

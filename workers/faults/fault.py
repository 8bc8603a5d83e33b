"""Fault: a historical bug, planted by replacing one function of the engine under test."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, update_wrapper, wraps
from typing import Any, Concatenate, TypeAlias

from scenarios.spec import EngineSpec
from workers.engine.functions import EngineFunctions, Kernel
from workers.lanes.lane import A
from workers.record.evidence import Fact, fact

Reached = Callable[[], None]
Apply: TypeAlias = Callable[[EngineFunctions, Reached], EngineFunctions]
Requires: TypeAlias = tuple[tuple[str, str | int], ...]
# Receives the original functions, and a function to call when the faulty path is taken, before the arguments of the
# function that it replaces.
Faulty: TypeAlias = Callable[Concatenate[EngineFunctions, Reached, ...], Any]


def op_like(kernel: Kernel[A], body: Kernel[A]) -> Kernel[A]:
    """Return a device op with the name of `kernel` that runs the NumPy function `body`.

    It computes with NumPy, so faults made from it exist only on the NumPy tier.
    """

    @wraps(kernel)
    def faulty(a: A) -> None:
        body(a)

    return faulty


def in_place_of(name: str) -> Callable[[Faulty], Apply]:
    """Return a decorator that makes a function the replacement of the engine function `name`.

    A replacement of a device op has the op's name and computes with NumPy, as in `op_like`.
    """

    def decorate(faulty: Faulty) -> Apply:
        def apply(functions: EngineFunctions, reached: Reached) -> EngineFunctions:
            made = update_wrapper(partial(faulty, functions, reached), getattr(functions, name))
            return replace(functions, **{name: made})

        return apply

    return decorate


@dataclass(frozen=True, slots=True)
class Fault:
    """A historical bug that can be switched on: source, symptom, trigger, replacement.

    Plane and trigger were written down before its first measurement.

    `requires` names fields of the specification, with the values that make the fault possible. `apply` takes the parts
    of an engine and a function to call whenever the faulty path is taken.
    """

    id: str
    source: str
    symptom: str
    trigger: str
    plane: str
    apply: Apply
    requires: Requires = ()

    def missing(self, spec: EngineSpec) -> Fact | None:
        """Return a message about an option that the fault requires and `spec` lacks, or None.

        None if no field does.
        """
        for key, wanted in self.requires:
            seen = getattr(spec, key)
            if seen != wanted:
                return fact("fault_requires", fault=self.id, key=key, wanted=wanted, seen=seen)
        return None


def fault(
    *, id: str, source: str, symptom: str, trigger: str, plane: str, requires: Requires = ()
) -> Callable[[Apply], Fault]:
    """Return a decorator that builds a `Fault` from a replacement and this description."""
    return lambda apply: Fault(id, source, symptom, trigger, plane, apply, requires)

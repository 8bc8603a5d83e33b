"""Hold one fault against one trace: is it found, and do tests of outputs find it.

The same trace, under its own schedule, is all that either gets; only their checks differ.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import wraps
from typing import Any

from scenarios.spec import Value
from scenarios.trace import Trace
from workers.check import CLEAN, Options, check
from workers.end_to_end import Outputs, first_difference, outputs, synchronous
from workers.engine.parts import Parts
from workers.faults.registry import FAULTS
from workers.tape import Tapes
from workers.verdict import Agreed, Crashed, Diverged, Lost, Stuck, Vacuous, Verdict

BASELINE_STEPS_MAX = 4000


class Shot(Value):
    """What came of one trace with one fault.

    `possible` says that the trace meets what the fault requires, `reached` that the replaced part was called,
    `triggered` that the faulty path was taken. `plane` and `variable` are of the first difference, or empty.
    """

    possible: bool
    reached: bool = False
    triggered: bool = False
    steps: int = 0
    plane: str = ""
    variable: str = ""


def shoot(fault: str, trace: Trace, tapes: Tapes) -> Shot:
    """Run an explicit trace with a fault switched on, every check watching."""
    if FAULTS[fault].missing(trace.spec) is not None:
        return Shot(possible=False)
    called: list[str] = []
    faulty = FAULTS[fault].apply(CLEAN, lambda: None)
    parts = _watched(faulty, lambda: called.append("") if not called else None)
    verdict = check(trace.model_copy(update={"faults": (fault,)}), tapes, Options(), parts)
    plane, variable = found_in(verdict)
    assert not isinstance(verdict, Lost), verdict
    return Shot(
        possible=True,
        reached=bool(called),
        triggered=verdict.stats.probes.get(f"fault {fault}", 0) > 0,
        steps=verdict.stats.steps,
        plane=plane,
        variable=variable,
    )


def found_in(verdict: Verdict) -> tuple[str, str]:
    """Return plane and variable of a finding, or two empty strings."""
    match verdict:
        case Diverged(difference=difference):
            return difference.plane, difference.variable
        case Crashed(where=where):
            return "crash", where.split(":", 1)[0]
        case Stuck():
            return "liveness", "stuck"
        case Agreed() | Vacuous() | Lost():
            return "", ""

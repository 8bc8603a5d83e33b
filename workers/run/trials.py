"""Trial of a fault: generated traces until it is found, every check beside a comparison of outputs.

A trial ends when a fault is found, or is given up after a number of traces. The traces of trial N are those of
`specstorm hunt --seed N --fault ID`, under their own schedules.
"""

import time
from collections.abc import Callable
from itertools import islice

from scenarios.shards import fitted, traces_of
from scenarios.spec import Value
from workers.faults.registry import FAULTS
from workers.oracle.tape import Tapes
from workers.run.trial import compare_outputs, run_with_fault
from workers.targets.target import DEFAULT_CONFIG, RunConfig


class Found(Value):
    """How many traces it took; None if they were not enough."""

    at: int | None = None


class Trial(Value):
    """One trial: how many of its traces reached and triggered the fault, and what found it when.

    `baseline` says whether outputs were compared as well. `steps` and `seconds` are those of the traces that our checks
    judged, until they found it.
    """

    fault: str
    number: int
    traces_max: int
    baseline: bool
    judged: int
    reached: int
    triggered: int
    steps: int
    seconds: float
    plane: str
    variable: str
    detected: Found
    against_synchronous: Found
    against_correct: Found


def run_trial(
    fault: str,
    number: int,
    traces_max: int,
    baseline: bool,
    tapes: Tapes,
    clock: Callable[[], float] = time.perf_counter,
    config: RunConfig = DEFAULT_CONFIG,
) -> Trial:
    """Run one trial; with `baseline`, outputs are compared too, until that has found it in both ways."""
    judged = reached = triggered = steps = 0
    seconds, plane, variable = 0.0, "", ""
    detected = synchronous = correct = None
    for count, fresh in enumerate(islice(traces_of(number), traces_max), 1):
        trace = fitted(fresh, FAULTS[fault].requires, (fault,)).explicit()
        if detected is None:
            start = clock()
            run = run_with_fault(fault, trace, tapes, config)
            seconds += clock() - start
            judged, reached, triggered = count, reached + run.reached, triggered + run.triggered
            steps += run.steps
            if run.plane:
                detected, plane, variable = count, run.plane, run.variable
        if baseline and (synchronous is None or correct is None):
            seen = compare_outputs(fault, trace, tapes, config)
            synchronous = synchronous or (count if seen.against_synchronous else None)
            correct = correct or (count if seen.against_correct else None)
        elif detected is not None:
            break
    return Trial(
        fault=fault,
        number=number,
        traces_max=traces_max,
        baseline=baseline,
        judged=judged,
        reached=reached,
        triggered=triggered,
        steps=steps,
        seconds=seconds,
        plane=plane,
        variable=variable,
        detected=Found(at=detected),
        against_synchronous=Found(at=synchronous),
        against_correct=Found(at=correct),
    )

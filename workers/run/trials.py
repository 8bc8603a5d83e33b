"""Trial of a fault: the number of random traces until a check finds the fault.

Both run the same trace under its own schedule; only the checks differ. A trial ends when the fault is found, or after a
maximum number of traces. Trial N has the same traces as `specstorm hunt --seed N --fault ID`.
"""

import time
from collections.abc import Callable
from itertools import islice
from typing import Annotated

from pydantic import Field

from scenarios.generation.shards import traces_of, with_faults
from scenarios.spec import Value
from scenarios.trace import Trace
from workers.faults.registry import FAULTS
from workers.judge.outputs import compare
from workers.oracle.model_values import ModelValueCache
from workers.record.names import Count
from workers.record.verdict import Lost
from workers.run.check import check
from workers.run.comparison import outputs_of
from workers.run.references import synchronous
from workers.shrink.fingerprint import signature_of
from workers.targets.registry import target_kind
from workers.targets.target import DEFAULT_CONFIG, RunConfig


class FaultRun(Value):
    """Result of one trace run with one fault.

    `reached`: the trace meets the fault's requirements, so the faulty code runs; `triggered`: it took the faulty path;
    `plane` and `variable`: from the finding's signature, or empty.
    """

    reached: bool
    triggered: bool = False
    steps: int = 0
    plane: str = ""
    variable: str = ""


def run_with_fault(
    fault: str, trace: Trace, value_cache: ModelValueCache, config: RunConfig = DEFAULT_CONFIG
) -> FaultRun:
    """Run an explicit trace (prompts as token ids) with one fault, under all checks."""
    if FAULTS[fault].missing(trace.spec) is not None:
        return FaultRun(reached=False)
    verdict = check(trace, value_cache, config=config)
    assert not isinstance(verdict, Lost), verdict
    signature = signature_of(verdict, trace)
    return FaultRun(
        reached=True,
        triggered=verdict.stats.probes.get(f"fault {fault}", 0) > 0,
        steps=verdict.stats.steps,
        plane=signature.plane if signature is not None else "",
        variable=signature.variable if signature is not None else "",
    )


def outputs_differ(fault: str, trace: Trace, value_cache: ModelValueCache, config: RunConfig) -> tuple[bool, bool]:
    """Return whether outputs differ from a synchronous run with the fault, and from one without."""
    if FAULTS[fault].missing(trace.spec) is not None:
        return False, False
    kind, same_code = target_kind(config.engine), synchronous(trace)
    correct_code = same_code.model_copy(update={"faults": ()})
    seen, same, correct = (outputs_of(run, value_cache, kind, config) for run in (trace, same_code, correct_code))
    return compare(trace, seen, same).difference is not None, compare(trace, seen, correct).difference is not None


class Found(Value):
    """After how many traces a check found the fault; None if it did not."""

    at: Count | None = None


class Trial(Value):
    """Result of one trial: after how many traces each check found the planted fault.

    - `baseline`: whether outputs were compared as well.
    - `judged`, `steps`, `seconds`: of the traces that all checks judged, until they found the fault.
    - `detected`: by all checks; `against_synchronous`, `against_correct`: by comparing output tokens with a synchronous
      run of the same code, or of the correct code.
    """

    fault: str
    number: Count
    traces_max: Count
    baseline: bool
    judged: Count
    reached: Count
    triggered: Count
    steps: Count
    seconds: Annotated[float, Field(ge=0, le=1e9)]
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
    value_cache: ModelValueCache,
    clock: Callable[[], float] = time.perf_counter,
    config: RunConfig = DEFAULT_CONFIG,
) -> Trial:
    """Run random traces with a fault until a check finds it."""
    judged = reached = triggered = steps = 0
    seconds, plane, variable = 0.0, "", ""
    detected = against_same = against_correct = None
    for count, fresh in enumerate(islice(traces_of(number), traces_max), 1):
        trace = with_faults(fresh, FAULTS[fault].requires, (fault,)).explicit()
        if detected is None:
            start = clock()
            run = run_with_fault(fault, trace, value_cache, config)
            seconds += clock() - start
            judged, reached, triggered = count, reached + run.reached, triggered + run.triggered
            steps += run.steps
            if run.plane:
                detected, plane, variable = count, run.plane, run.variable
        if baseline and (against_same is None or against_correct is None):
            from_same, from_correct = outputs_differ(fault, trace, value_cache, config)
            against_same = against_same or (count if from_same else None)
            against_correct = against_correct or (count if from_correct else None)
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
        against_synchronous=Found(at=against_same),
        against_correct=Found(at=against_correct),
    )

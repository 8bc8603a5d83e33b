"""One fault on one trace: whether our checks find it, and whether a comparison of outputs does.

Both get the same trace under its own schedule; only what is checked differs.
"""

from scenarios.spec import Value
from scenarios.trace import Trace
from workers.faults.registry import FAULTS
from workers.judge import outputs
from workers.oracle.tape import Tapes
from workers.record.verdict import Lost
from workers.run.check import check
from workers.run.comparison import outputs_of
from workers.run.references import synchronous
from workers.shrink.fingerprint import signature_of
from workers.targets.registry import kind_of
from workers.targets.target import DEFAULT_CONFIG, RunConfig


class FaultRun(Value):
    """Result of one trace that was run with one fault.

    `reached`: the trace meets what the fault requires, so that the faulty code runs; `triggered`: it took the faulty
    path; `plane` and `variable` are those of the finding's signature, or empty.
    """

    reached: bool
    triggered: bool = False
    steps: int = 0
    plane: str = ""
    variable: str = ""


class Baseline(Value):
    """Whether outputs differ at the end: from a synchronous run of the same code, and of correct code."""

    against_synchronous: bool
    against_correct: bool


def run_with_fault(fault: str, trace: Trace, tapes: Tapes, config: RunConfig = DEFAULT_CONFIG) -> FaultRun:
    """Run an explicit trace, which has the fault switched on, under every check."""
    if FAULTS[fault].missing(trace.spec) is not None:
        return FaultRun(reached=False)
    verdict = check(trace, tapes, config=config)
    assert not isinstance(verdict, Lost), verdict
    signature = signature_of(verdict, trace)
    return FaultRun(
        reached=True,
        triggered=verdict.stats.probes.get(f"fault {fault}", 0) > 0,
        steps=verdict.stats.steps,
        plane=signature.plane if signature is not None else "",
        variable=signature.variable if signature is not None else "",
    )


def compare_outputs(fault: str, trace: Trace, tapes: Tapes, config: RunConfig = DEFAULT_CONFIG) -> Baseline:
    """Run the same trace and compare its outputs alone."""
    if FAULTS[fault].missing(trace.spec) is not None:
        return Baseline(against_synchronous=False, against_correct=False)
    correct_code = trace.model_copy(update={"faults": ()})
    runs = (trace, synchronous(trace), synchronous(correct_code))
    kind = kind_of(config.engine)
    seen, same_code, correct = (outputs_of(run, tapes, kind, config) for run in runs)
    return Baseline(
        against_synchronous=outputs.compare_outputs(trace, seen, same_code) is not None,
        against_correct=outputs.compare_outputs(trace, seen, correct) is not None,
    )

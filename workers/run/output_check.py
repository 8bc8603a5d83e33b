"""Check of outputs: run an engine for them alone, judge them by contracts, and compare them with other runs.

Verifies: what follows from each request alone; an asynchronous run against a synchronous one, where the engine has
both, and each request batched against the same request alone.
Does not verify: a mistake that all of these runs share and no contract forbids.
"""

import traceback
from hashlib import blake2b

from scenarios.capabilities import Capabilities
from scenarios.events import Abort, Schedule, Stall, Submit
from scenarios.trace import Trace
from workers.judge.contracts.breach import PLANE, Breach
from workers.judge.contracts.judge import contract_breach
from workers.judge.outputs import OutputDifference, Outputs, compare
from workers.lanes.lane import Deadlock
from workers.oracle.tape import Tapes
from workers.record.verdict import NO_STATS, Agreed, Crashed, Difference, Diverged, Stats, Stuck, Verdict
from workers.run.drive import Drive, scripts_of
from workers.targets.target import DEFAULT_CONFIG, DeviceError, Progress, RunConfig, TargetKind, Watch

STEPS_MAX = 4000
# Counts the requests that part from another run where two logits are too close for the engine's arithmetic.
NEAR_TIE = "near_tie"


class OutputRun:
    """One run of an engine with nothing looked at but its outputs."""

    def __init__(self, trace: Trace, tapes: Tapes, kind: TargetKind, config: RunConfig = DEFAULT_CONFIG) -> None:
        self.target = kind.open(trace, config, Watch())
        self.drive = Drive(trace, self.target, scripts_of(trace, tapes, kind.capabilities))

    def to_end(self, steps_max: int, watches: bool = False) -> bool:
        """Step until the engine has drained; tell whether it has within so many steps.

        With `watches` outputs are looked at behind every step: whether what was delivered stays.
        """
        while not self.drive.drained():
            if self.drive.tick > steps_max:
                return False
            self.drive.step()
            self.target.take_log()
            self.target.take_captures()
            if watches:
                self.drive.deliveries.shown(self.target.outputs())
        return True


def outputs_of(
    trace: Trace, tapes: Tapes, kind: TargetKind, config: RunConfig = DEFAULT_CONFIG, steps_max: int = STEPS_MAX
) -> Outputs | str:
    """Run an explicit trace; return each request's output, or how the run broke off."""
    try:
        run = OutputRun(trace, tapes, kind, config)
        try:
            return run.target.outputs() if run.to_end(steps_max) else "it does not end"
        finally:
            run.target.close()
    except Deadlock:
        return "deadlock"
    except DeviceError:
        raise
    except Exception as error:
        return f"{type(error).__name__}"


def synchronous(trace: Trace) -> Trace:
    """Return the same trace for an engine that processes each step before it schedules the next."""
    spec = trace.spec.model_copy(update={"depth": 1})
    return trace.model_copy(update={"spec": spec, "schedule": Schedule()})


def alone(trace: Trace, name: str) -> Trace:
    """Return a trace of one request, with the events that name it and none of anybody else's."""
    own = tuple(event for event in trace.events if isinstance(event, Submit | Abort | Stall) and event.request == name)
    return trace.model_copy(update={"events": own, "schedule": Schedule()})


def check_outputs(trace: Trace, tapes: Tapes, kind: TargetKind, config: RunConfig = DEFAULT_CONFIG) -> Verdict:
    """Judge an engine that shows outputs alone on an explicit trace."""
    try:
        run = OutputRun(trace, tapes, kind, config)
    except DeviceError:
        raise
    except Exception as error:
        return Crashed(stats=NO_STATS, error=f"{type(error).__name__}: {error}", where=place_of(error))
    try:
        if not run.to_end(STEPS_MAX, watches=True):
            return Stuck(stats=_stats(run), reason=f"not drained after {run.drive.tick} steps")
        seen, stats, breach = run.target.outputs(), _stats(run), breach_of(run.drive, trace, kind.capabilities)
    except Deadlock as deadlock:
        return Stuck(stats=_stats(run), reason=str(deadlock))
    except Exception as error:
        return Crashed(stats=_stats(run), error=f"{type(error).__name__}: {error}", where=place_of(error))
    finally:
        run.target.close()
    others = [("the request alone", alone(trace, name)) for name in seen]
    depths = kind.capabilities.spec.get("depth", (1,))
    if trace.spec.depth > 1 and (not depths or 1 in depths):
        others.insert(0, ("the synchronous run", synchronous(trace)))
    if breach is not None:
        difference = broken_contract(breach, run.drive.tick)
        how, other = others[0]
        if other.spec.depth < trace.spec.depth:
            actual = f"{difference.actual}; {how} {_as_breached(breach, other, tapes, kind, config)}"
            difference = difference.model_copy(update={"actual": actual})
        return Diverged(stats=stats, difference=difference)
    for number, (how, other) in enumerate(others, 1):
        stats = stats.model_copy(update={"captures": number})
        wanted = outputs_of(other, tapes, kind, config)
        found, near_ties = compare(trace, seen, wanted, kind.capabilities.logit_margin)
        if found is not None:
            return Diverged(stats=stats, difference=_difference(found, how, run.drive.tick))
        if near_ties:
            num_ties = stats.probes.get(NEAR_TIE, 0) + len(near_ties)
            stats = stats.model_copy(update={"probes": {**stats.probes, NEAR_TIE: num_ties}})
    return Agreed(stats=stats)


def breach_of(drive: Drive, trace: Trace, capabilities: Capabilities) -> Breach | None:
    """Return the first contract that an engine which has drained has broken, or None."""
    return contract_breach(trace, drive.deliveries, drive.target.outputs(), capabilities.words_from_prompt)


def broken_contract(breach: Breach, step: int) -> Difference:
    """Return a breach as a difference."""
    return Difference(
        plane=PLANE,
        variable=breach.contract,
        request=breach.request,
        commit="",
        step=step,
        position=breach.position,
        expected=breach.expected,
        actual=breach.actual,
    )


def _as_breached(breach: Breach, trace: Trace, tapes: Tapes, kind: TargetKind, config: RunConfig) -> str:
    """Say whether another run breaks the same contract for the same request."""
    try:
        run = OutputRun(trace, tapes, kind, config)
        try:
            run.to_end(STEPS_MAX, watches=True)
            found = breach_of(run.drive, trace, kind.capabilities)
        finally:
            run.target.close()
    except DeviceError:
        raise
    except Exception as error:
        return f"breaks off: {type(error).__name__}"
    if found is None:
        return "keeps it"
    is_same = (found.contract, found.request) == (breach.contract, breach.request)
    return "breaks it too" if is_same else f"breaks {found.contract} of {found.request}"


def place_of(error: Exception) -> str:
    """Return where an exception was raised: function, file and line."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{where.name} in {where.filename.rsplit('/', 1)[-1]}:{where.lineno}"


def _stats(run: OutputRun) -> Stats:
    """Return what a run did; its captures are the runs that it was compared with."""
    progress: Progress = run.target.progress()
    text = repr(sorted(run.target.outputs().items()))
    return Stats(
        requests=progress.requests,
        steps=run.drive.tick,
        commits=progress.commits,
        captures=0,
        run_ahead_max=progress.run_ahead_max,
        digest=blake2b(text.encode(), digest_size=16).hexdigest(),
        probes={name: count for name, count in sorted(run.target.probes.items()) if count},
        planes=(PLANE, "liveness", "tokens"),
    )


def _difference(found: OutputDifference, how: str, step: int) -> Difference:
    return Difference(
        plane="liveness" if found.variable == "end" else "logits" if found.variable == "logprobs" else "tokens",
        variable=found.variable,
        request=found.request,
        commit="",
        step=step,
        position=found.position,
        expected=f"{found.expected}, as in {how}",
        actual=str(found.actual),
    )

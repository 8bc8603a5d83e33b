"""Check of outputs: run an engine for them alone, judge them by contracts, and compare them with other runs.

Verifies: what follows from each request alone; identities of the steps that an engine shows; an asynchronous run
against a synchronous one, where the engine has both, that one against one without speculation, and requests batched
against the same requests alone. A finding on an engine that was used before is verified on a new one.
Does not verify: a mistake that all of these runs share and no contract forbids.
"""

import traceback
from collections.abc import Iterator
from hashlib import blake2b

from scenarios.trace import Trace
from workers.judge.contracts.breach import PLANE, Breach
from workers.judge.outputs import OutputDifference, Outputs, compare
from workers.judge.step_identities import PLANES, StepIdentities, difference_of
from workers.lanes.lane import Deadlock
from workers.oracle.incremental_tape import depends_on_drafts
from workers.oracle.tape import Tapes
from workers.record.observation import Observation
from workers.record.verdict import (
    NO_STATS,
    Agreed,
    Crashed,
    Difference,
    Diverged,
    Stats,
    Stuck,
    Vacuous,
    Verdict,
    is_finding,
)
from workers.run.drive import Drive, scripts_of
from workers.run.references import NUM_UNDECIDED, References, references, undecided_trace
from workers.targets.target import DEFAULT_CONFIG, DeviceError, EngineFailed, Progress, RunConfig, TargetKind, Watch

STEPS_MAX = 4000
# Counts the requests that part from another run where two logits are too close for the engine's arithmetic.
NEAR_TIE = "near_tie"


class OutputRun:
    """One run of an engine with nothing looked at but its outputs."""

    def __init__(
        self,
        trace: Trace,
        tapes: Tapes,
        kind: TargetKind,
        config: RunConfig = DEFAULT_CONFIG,
        races: bool = False,
        steps: bool = False,
        blame: bool = False,
    ) -> None:
        capabilities = kind.capabilities
        steps = steps and set(PLANES) <= set(capabilities.planes)
        self.target = kind.open(trace, config, Watch(blame=blame, races=races, steps=steps))
        self.identities = StepIdentities() if steps else None
        # What they come to depends on which drafts they get, and a race may change those.
        self.left_to_drafts = {
            event.request
            for event in trace.submits()
            if capabilities.logit_margin and depends_on_drafts(event.params, trace.spec)
        }
        self.drive = Drive(trace, self.target, scripts_of(trace, tapes, capabilities), capabilities.words_from_prompt)

    def to_end(self, steps_max: int, watches: bool = False) -> bool:
        """Step until the engine has drained; tell whether it has within so many steps.

        With `watches` outputs are looked at behind every step: whether what was delivered stays.
        """
        while not self.drive.drained():
            if self.drive.tick > steps_max:
                return False
            self.drive.step()
            self._look()
            self.target.take_captures()
            if watches:
                self.drive.deliveries.shown(self.target.outputs())
        return True

    @property
    def planes(self) -> tuple[str, ...]:
        """The planes of its steps, if it has shown any."""
        return PLANES if self.identities is not None and self.identities.has_seen else ()

    def differences(self) -> Iterator[Difference]:
        """Yield what is wrong within the run, once it has ended: what the target says itself, then of its steps."""
        yield from self.target.differences()
        self._look()
        broken = self.identities.breach() if self.identities is not None else None
        if broken is not None:
            yield difference_of(broken)

    def _look(self) -> None:
        """Take the log of what was done since the last look."""
        seen = self.target.take_log()
        if self.identities is not None:
            self.identities.see(entry for entry in seen if isinstance(entry, Observation))


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
        return text_of(error) if isinstance(error, EngineFailed) else f"{type(error).__name__}"


def check_outputs(
    trace: Trace,
    tapes: Tapes,
    kind: TargetKind,
    config: RunConfig = DEFAULT_CONFIG,
    races: bool = True,
    compared: References | None = None,
    blame: bool = False,
) -> Verdict:
    """Judge an engine that shows outputs alone on an explicit trace; with `races`, its accesses of memory too.

    Runs of the same trace may share what they are `compared` with. With `blame` the harm of a race is looked for.
    """
    compared = compared if compared is not None else References()
    verdict = _judged(trace, tapes, kind, config, races, compared, blame)
    # What a verdict depends on is in the trace: nothing that an engine did before may have a part in it.
    if is_finding(verdict) and kind.renew(config):
        # What a crash says of itself depends on whether races are watched; watched, it may say more.
        races = races or isinstance(verdict, Crashed)
        return _judged(trace, tapes, kind, config, races, References(compared.last), blame)
    return verdict


def _judged(
    trace: Trace,
    tapes: Tapes,
    kind: TargetKind,
    config: RunConfig,
    races: bool,
    compared: References,
    blame: bool,
) -> Verdict:
    try:
        run = OutputRun(trace, tapes, kind, config, races, steps=True, blame=blame)
    except DeviceError:
        raise
    except Exception as error:
        return Crashed(stats=NO_STATS, error=text_of(error), where=place_of(error))
    try:
        try:
            if not run.to_end(STEPS_MAX, watches=True):
                return Stuck(stats=_stats(run), reason=f"not drained after {run.drive.tick} steps")
            seen, breach = run.target.outputs(), run.drive.breach()
            wrong = next(run.differences(), None)
            # Known races are among what it counts, and counted by now.
            stats = _stats(run)
        except Deadlock as deadlock:
            return Stuck(stats=_stats(run), reason=str(deadlock))
        except Exception as error:
            order = _missing_order(run)
            return Crashed(stats=_stats(run), error=text_of(error), where=place_of(error), missing_order=order)
        finally:
            run.target.close()
    except EngineFailed as error:
        # It failed to give the engine back.
        return Crashed(stats=_stats(run), error=text_of(error), where=place_of(error))
    if wrong is not None:
        return Diverged(stats=stats, difference=wrong)
    others = list(references(trace, list(seen), kind.capabilities))
    if breach is not None:
        difference = broken_contract(breach, run.drive.tick)
        if others and others[0][1].spec.depth < trace.spec.depth:
            how, other = others[0]
            actual = f"{difference.actual}; {how} {_as_breached(breach, other, tapes, kind, config)}"
            difference = difference.model_copy(update={"actual": actual})
        return Diverged(stats=stats, difference=difference)
    ties: set[str] = set()
    for number, (how, other) in enumerate(compared.that_matter(others), 1):
        stats = stats.model_copy(update={"captures": number})
        wanted = compared.outputs_of(other, lambda reference: outputs_of(reference, tapes, kind, config))
        found = _compared(trace, seen, wanted, ties, tapes, kind, config)
        if found is not None:
            return Diverged(stats=stats, difference=_difference(found, how, run.drive.tick))
    if ties:
        stats = stats.model_copy(update={"probes": {**stats.probes, NEAR_TIE: len(ties)}})
    return _as_expected(trace, stats)


def _missing_order(run: OutputRun) -> str | None:
    """Return the first race before a crash, if there was one that is not known and the engine can still say so."""
    try:
        return next((wrong.missing_order for wrong in run.target.differences() if wrong.missing_order), None)
    except EngineFailed:
        return None


def _compared(
    trace: Trace,
    seen: Outputs,
    wanted: Outputs | str,
    ties: set[str],
    tapes: Tapes,
    kind: TargetKind,
    config: RunConfig,
) -> OutputDifference | None:
    """Return the first difference that is none of near ties; the requests that have one are added to `ties`."""
    margin = kind.capabilities.logit_margin
    while True:
        found, near_ties = compare(trace, seen, wanted, margin, ties)
        if found is None or not margin or not _is_narrow(found, trace, tapes, kind, config):
            ties.update(near_ties)
            return found
        ties.add(found.request)


def _as_expected(trace: Trace, stats: Stats) -> Verdict:
    """Return agreement, unless something that had to happen did not."""
    missing = not_hit(trace, stats)
    return Vacuous(stats=stats, missing=tuple(missing)) if missing else Agreed(stats=stats)


def not_hit(trace: Trace, stats: Stats) -> list[str]:
    """Say of each probe that a trace expects, and that was hit less often, how often it was."""
    return [
        f"{probe}: expected at least {least}, seen {stats.probes.get(probe, 0)}"
        for probe, least in trace.expect.items()
        if stats.probes.get(probe, 0) < least
    ]


def _is_narrow(found: OutputDifference, trace: Trace, tapes: Tapes, kind: TargetKind, config: RunConfig) -> bool:
    """Tell whether the likeliest two tokens were so near to each other where two runs part that either is right."""
    if found.variable != "tokens" or found.position is None:
        return False
    asked = undecided_trace(trace, found.request)
    outputs = outputs_of(asked, tapes, kind, config)
    if isinstance(outputs, str) or found.request not in outputs:
        return False
    width, position = 2 * NUM_UNDECIDED, found.position
    # A token's own id and logprob come first, those of the likeliest behind them.
    row = outputs[found.request].logprobs[width * position : width * (position + 1)]
    return len(row) == width and abs(float(row[3]) - float(row[5])) <= kind.capabilities.logit_margin


def text_of(error: Exception) -> str:
    """Return what an exception says: of one in an engine's own process what it said there."""
    return str(error) if isinstance(error, EngineFailed) else f"{type(error).__name__}: {error}"


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
            found = run.drive.breach()
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
    if isinstance(error, EngineFailed):
        return error.where
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{where.name} in {where.filename.rsplit('/', 1)[-1]}:{where.lineno}"


def _stats(run: OutputRun) -> Stats:
    """Return what a run did; its captures are the runs that it was compared with."""
    progress: Progress = run.target.progress()
    outputs = run.target.outputs()
    text = repr(sorted((name, outputs[name]) for name in outputs if name not in run.left_to_drafts))
    return Stats(
        requests=progress.requests,
        steps=run.drive.tick,
        commits=progress.commits,
        captures=0,
        run_ahead_max=progress.run_ahead_max,
        digest=blake2b(text.encode(), digest_size=16).hexdigest(),
        probes={name: count for name, count in sorted(run.target.probes.items()) if count},
        planes=(PLANE, "liveness", "tokens", *run.planes),
    )


def _difference(found: OutputDifference, how: str, step: int) -> Difference:
    return Difference(
        plane="liveness" if found.variable == "end" else "logits" if found.variable.endswith("logprobs") else "tokens",
        variable=found.variable,
        request=found.request,
        commit="",
        step=step,
        position=found.position,
        expected=f"{found.expected}, as in {how}",
        actual=str(found.actual),
    )

"""Check of one trace: run it under its own schedule, let the panel judge it, and compare outputs with other runs.

Verifies: what the judges of the panel verify, progress, and that what was expected happened. Of an engine whose
decisions are its own besides: an asynchronous run against a synchronous one, where the engine has both, one against one
without speculation, and requests batched against the same requests alone. A finding on an engine that was used before
is verified on a new one.
Does not verify: other schedules of the same trace (`worker` runs those); a mistake that all of these runs share and no
judge sees.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from scenarios.capabilities import lacking
from scenarios.trace import Trace
from workers.judge.contracts.breach import PLANE
from workers.judge.contracts.delivery import Delivery
from workers.judge.history import History
from workers.judge.outputs import Outputs
from workers.oracle.tape import Tapes
from workers.record.evidence import Difference, Fact, fact
from workers.record.verdict import (
    NO_STATS,
    Agreed,
    Crashed,
    Diverged,
    NotDrained,
    Stats,
    Stuck,
    Vacuous,
    Verdict,
    is_finding,
)
from workers.run.comparison import Comparison
from workers.run.engine_run import DEFAULT_OPTIONS, Options, Run, error_text, site_of
from workers.run.places import of_crash, placed, ranked
from workers.run.references import References, numbered, requests_of
from workers.run.repetition import kept_by, repeated
from workers.targets.registry import kind_of
from workers.targets.target import (
    DEFAULT_CONFIG,
    Confirmation,
    DeviceError,
    EngineFailed,
    RunConfig,
    TargetKind,
    Unconfirmed,
)

# Counts the requests that part from another run where two logits are too close for the engine's arithmetic.
NEAR_TIE = "near_tie"
_LEFT_BEHIND = (
    "what is found is not found in a process in which no other trace ran before: the engine's process keeps something "
    "of other traces, which is a mistake of ours"
)


def check(
    trace: Trace,
    tapes: Tapes,
    options: Options = DEFAULT_OPTIONS,
    kind: TargetKind | None = None,
    config: RunConfig = DEFAULT_CONFIG,
) -> Verdict:
    """Run an explicit trace under its own schedule and return the verdict.

    `kind` is the engine of the configuration, if it is not given.

    Raises:
        DeviceError: the trace cannot run on that device.
        Unconfirmed: a finding is none of the engine's.
    """
    kind = kind if kind is not None else kind_of(config.engine)
    lacks = lacking(trace, kind.capabilities_under(config))
    assert lacks is None, f"engine {kind.name}: {lacks}"
    unmet = kind.unmet(trace)
    if unmet is not None:
        return Vacuous(stats=NO_STATS, missing=(unmet,))
    kind.prepare(config)
    agreed = options.compared.agreed if options.compared is not None else None
    if agreed is not None and agreed.is_of(trace) and config.device != "cuda":
        # On simulated lanes a run that has to be judged after all repeats exactly.
        stats = repeated(lambda: Run(trace, tapes, options, kind, config), agreed)
        if stats is not None:
            return _as_expected(trace, stats)
    verdict = judged(trace, tapes, options, kind, config)
    # A verdict depends on the trace alone: not on what the engine did before.
    if is_finding(verdict) and kind.renew(config):
        # The message of a crash depends on whether races are watched. A finding that is reported carries its race.
        races = options.races or options.confirm != "never" or isinstance(verdict, Crashed)
        until = options.compared.until if options.compared is not None else "all"
        options = replace(options, races=races, compared=References(until))
        verdict = judged(trace, tapes, options, kind, config)
        confirmation = kind.confirmation(config) if options.confirm != "never" else None
        if confirmation is not None and isinstance(verdict, Diverged | Crashed | Stuck):
            steps = verdict.stats.steps
            if steps > confirmation.steps_max:
                why = fact("unconfirmed", steps=steps, steps_max=confirmation.steps_max)
                return verdict.model_copy(update={"unconfirmed": why})
            if options.confirm == "later":
                return verdict.model_copy(update={"unconfirmed": fact("unconfirmed_yet")})
            return _confirmed(trace, tapes, replace(options, compared=References(until)), kind, config, confirmation)
    return verdict


def _confirmed(
    trace: Trace, tapes: Tapes, options: Options, kind: TargetKind, config: RunConfig, confirmation: Confirmation
) -> Verdict:
    """Return the finding of a slower run of the same engine that confirms one.

    Raises:
        Unconfirmed: there is none.
    """
    kind.renew(confirmation.config)
    verdict = judged(trace, tapes, options, kind, confirmation.config)
    if not is_finding(verdict):
        kind.restart(config)
        is_there = is_finding(judged(trace, tapes, options, kind, config))
        raise Unconfirmed(confirmation.otherwise if is_there else _LEFT_BEHIND)
    return verdict


def judged(trace: Trace, tapes: Tapes, options: Options, kind: TargetKind, config: RunConfig) -> Verdict:
    """Run a trace and let the panel judge it; outputs alone are compared with those of other runs."""
    try:
        run = Run(trace, tapes, options, kind, config)
    except DeviceError:
        raise
    except Exception as error:
        where = site_of(error)
        made_at = ranked(None, kind.places, of_crash([where], kind.places))
        return Crashed(stats=NO_STATS, error=error_text(error), where=where, made_at=made_at)
    ended = _ended(run, options)
    if isinstance(ended, Crashed):
        before = placed(ended.before, kind.places, trace) if ended.before is not None else None
        made_at = ranked(ended.missing_order, kind.places, of_crash((ended.where, *ended.callers), kind.places))
        return ended.model_copy(update={"before": before, "made_at": made_at})
    if isinstance(ended, Stuck):
        made_at = ranked(ended.missing_order, kind.places, kind.places.get(("liveness", "progress"), ()))
        return ended.model_copy(update={"made_at": made_at})
    if not isinstance(ended, _Ended):
        return ended
    found, stats, outputs, history, taken = ended
    if kind.capabilities.logs_decisions:
        return _as_expected(trace, stats) if found is None else Diverged(stats=stats, difference=found)
    explicit = run.explicit()
    requests = requests_of(explicit, taken)
    comparison = Comparison(trace, explicit, tapes, kind, config, options.compared or References(), requests)
    if found is None:
        found = comparison.first_difference(outputs, stats.steps, history)
        probes = {**stats.probes, NEAR_TIE: len(comparison.ties)} if comparison.ties and found is None else stats.probes
        stats = stats.model_copy(update={"captures": comparison.count, "probes": probes})
    elif found.plane == PLANE:
        found = found.model_copy(update={"elsewhere": comparison.elsewhere(found)})
    if found is None:
        return _as_expected(trace, stats)
    by_number = numbered(explicit, taken)
    return Diverged(stats=stats, difference=placed(found, kind.places, by_number))


class _Ended(NamedTuple):
    """The end of a run: the first difference, what the engine has shown, and the requests that it took in."""

    found: Difference | None
    stats: Stats
    outputs: Outputs
    history: History
    taken: Sequence[Delivery]


def _ended(run: Run, options: Options) -> _Ended | Verdict:
    """Drive a run to its end, and close its engine; return a verdict where it does not come to an end."""
    try:
        ended = _driven(run, options)
    except BaseException:
        run.target.close()
        raise
    try:
        run.target.close()
    except EngineFailed as error:
        # It failed to give the engine back; what was found before comes first.
        if isinstance(ended, _Ended) and ended.found is None:
            return Crashed(stats=ended.stats, error=error_text(error), where=error.where)
    return ended


def _driven(run: Run, options: Options) -> _Ended | Verdict:
    """Drive a run to its end; return a verdict where it does not come to one."""
    try:
        keeps = kept_by(run, options.compared)
        found = run.to_end()
        if isinstance(found, NotDrained):
            return run.stuck(found)
        if found is None and keeps is not None:
            keeps(run.target.left_over(), run.target.digest())
        explained = run.explained(found) if found is not None else None
        taken = run.panel.contracts.taken if run.panel.contracts is not None else []
        return _Ended(explained, run.stats(), run.target.outputs(), run.panel.history(), taken)
    except DeviceError:
        raise
    except Exception as error:
        if isinstance(error.__cause__, DeviceError):
            raise error.__cause__ from None
        return run.broken_off(error)


def _as_expected(trace: Trace, stats: Stats) -> Verdict:
    """Return agreement, unless something that had to happen did not."""
    missing = tuple(not_hit(trace, stats))
    return Vacuous(stats=stats, missing=missing) if missing else Agreed(stats=stats)


def not_hit(trace: Trace, stats: Stats) -> list[Fact]:
    """Return the probes that a trace expects and that were hit less often, and the faults never reached."""
    seen = stats.probes
    probes = [
        fact("probe", probe=probe, least=least, seen=seen.get(probe, 0))
        for probe, least in trace.expect.items()
        if seen.get(probe, 0) < least
    ]
    faults = [fact("fault_not_reached", fault=fault) for fault in trace.faults if f"fault {fault}" not in seen]
    return probes + faults

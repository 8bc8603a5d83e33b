"""Run a trace, compare it with reference runs, confirm a finding, and explain it.

`judgement` does these steps in order. Hunts and the shrinker need only `check`, which runs one schedule, compares, and
confirms a finding: on a new engine, then with slower kernels.

Verifies:
- everything that the judges of the panel verify;
- progress: the run ends, and expected probes are hit;
- all schedules capture the same bytes;
- for an engine that does not log its decisions, also its outputs: async scheduling against synchronous runs,
  speculative decoding against runs without draft tokens, batched requests against each request alone;
- for such an engine, that it does no more work than the synchronous run, or than the release that it replaces.

Does not verify: a bug that all of these runs share and no judge detects.
"""

from collections.abc import Callable
from dataclasses import replace

from scenarios.capabilities import lacking
from scenarios.events import Schedule
from scenarios.trace import Trace
from workers.judge.contracts.breach import PLANE
from workers.oracle.model_values import ModelValueCache
from workers.record.evidence import RACES, Fact, MissingOrder, fact
from workers.record.verdict import (
    NO_STATS,
    Agreed,
    Crashed,
    Diverged,
    Judgement,
    NotDrained,
    Outcome,
    Stats,
    Stuck,
    Vacuous,
    Verdict,
    detected_race,
    is_finding,
    with_detected_race,
    with_known_causes,
)
from workers.run.comparison import Comparison
from workers.run.engine_run import DEFAULT_OPTIONS, Confirm, FinishedRun, Options, Run, error_text, site_of
from workers.run.references import References, requests_of, with_accepted_submits
from workers.run.schedules import differs, has_lanes, schedules_on
from workers.run.source_locations import crash_locations, ranked_locations, with_source_locations
from workers.targets.registry import target_kind
from workers.targets.target import (
    DEFAULT_CONFIG,
    Confirmation,
    DeviceError,
    Places,
    RunConfig,
    TargetKind,
    Unconfirmed,
)

# Probe: requests with output tokens that diverge from another run at a near tie of two logits.
NEAR_TIE = "near_tie"
_LEFT_BEHIND = (
    "the finding does not reproduce in a new process of the engine: either our own code keeps state of earlier traces "
    "in the engine's process, or the engine behaves differently in each process"
)


def run_and_explain(
    trace: Trace,
    sweep: bool,
    value_cache: ModelValueCache,
    known_bugs: Callable[[Verdict, Trace, RunConfig], tuple[str, ...]],
    config: RunConfig = DEFAULT_CONFIG,
    confirm: Confirm = "now",
) -> Judgement:
    """Run a trace under its own or many schedules, and explain the finding, if any.

    All schedules of a sweep must capture the same bytes. The returned trace has the schedule that reproduces the
    finding; for a race, a fixed schedule under which the race does harm, if there is one. `known_bugs` returns the
    known bugs that explain a finding: it disappears with their fixes.
    """
    trace = trace.explicit()
    if not trace.events:
        nothing = Vacuous(stats=NO_STATS, missing=(fact("no_event"),))
        return Judgement(verdict=nothing, trace=trace, schedules=0)
    # Run, compare and confirm, under one schedule after the other.
    if sweep:
        trace, verdict, tried = _run_schedules(trace, value_cache, config, confirm)
    else:
        verdict, tried = check(trace, value_cache, Options(confirm=confirm), config=config), 1
    if isinstance(verdict, Agreed | Vacuous):
        return Judgement(verdict=verdict, trace=trace, schedules=tried)
    # Explain: the outcome of each fixed schedule, the last writers of the value, an earlier race, and known bugs.
    outcomes, worst = _outcomes(trace, value_cache, config)
    order = detected_race(verdict)
    is_harmless = isinstance(verdict, Diverged) and verdict.difference.plane == RACES
    if is_harmless and worst is not None:
        trace = trace.model_copy(update={"schedule": worst})
    verdict = explain_finding(verdict, trace, value_cache, config, confirm)
    verdict = with_detected_race(verdict, order or _race_before(verdict, trace, value_cache, config))
    verdict = with_known_causes(verdict, known_bugs(verdict, trace, config))
    return Judgement(verdict=verdict, trace=trace, schedules=tried + len(outcomes), outcomes=outcomes)


def _run_schedules(
    trace: Trace, value_cache: ModelValueCache, config: RunConfig, confirm: Confirm
) -> tuple[Trace, Verdict, int]:
    """Run a trace under one schedule after another until one has a finding."""
    first: Agreed | None = None
    ahead = 0
    compared = References()
    schedules = [each.model_copy(update={"holds": trace.schedule.holds}) for each in schedules_on(config)]
    for tried, schedule in enumerate(schedules, 1):
        candidate = trace.model_copy(update={"schedule": schedule})
        options = Options(races=tried == 1, compared=compared, confirm=confirm)
        verdict = check(candidate, value_cache, options, config=config)
        if not isinstance(verdict, Agreed):
            return candidate, verdict, tried
        ahead = max(ahead, verdict.stats.run_ahead_max)
        first = first or verdict
        if verdict.stats.digest != first.stats.digest:
            return candidate, differs(verdict, first, schedule), tried
    assert first is not None, "a device has a schedule"
    stats = first.stats.model_copy(update={"run_ahead_max": ahead})
    return trace, Agreed(stats=stats), len(schedules)


def _outcomes(
    trace: Trace, value_cache: ModelValueCache, config: RunConfig
) -> tuple[tuple[Outcome, ...], Schedule | None]:
    """Run the fixed schedules; return each outcome, and the first schedule with a finding.

    These runs have no race detector.
    """
    outcomes, worst = [], None
    options = Options(races=False, compared=References(), confirm="never")
    for schedule in schedules_on(config, fixed=True):
        verdict = check(trace.model_copy(update={"schedule": schedule}), value_cache, options, config=config)
        if worst is None and is_finding(verdict):
            worst = schedule
        outcomes.append(Outcome.of(schedule, verdict))
    return tuple(outcomes), worst


def explain_finding(
    verdict: Verdict, trace: Trace, value_cache: ModelValueCache, config: RunConfig, confirm: Confirm = "now"
) -> Verdict:
    """Rerun a finding to record the last writers of its wrong value and the harm of its race.

    The trace runs again for that. A crash already has its source location and its race.
    """
    if not isinstance(verdict, Diverged | Stuck):
        return verdict
    again = check(trace, value_cache, Options(blame=True, confirm=confirm), config=config)
    return again if is_finding(again) else verdict


def _race_before(
    verdict: Verdict, trace: Trace, value_cache: ModelValueCache, config: RunConfig
) -> MissingOrder | None:
    """Return the first race under the eager schedule, for a trace that crashed; or None.

    The crashed process itself cannot report its race any more.
    """
    if not isinstance(verdict, Crashed) or verdict.missing_order:
        return None
    if trace.schedule == Schedule() or not has_lanes(config):
        return None
    eager = trace.model_copy(update={"schedule": Schedule()})
    return detected_race(check(eager, value_cache, Options(confirm="never"), config=config))


def check(
    trace: Trace,
    value_cache: ModelValueCache,
    options: Options = DEFAULT_OPTIONS,
    kind: TargetKind | None = None,
    config: RunConfig = DEFAULT_CONFIG,
) -> Verdict:
    """Run a trace under its own schedule, with all judges and reference runs.

    `kind` defaults to the engine of the configuration.

    Raises:
        DeviceError: the trace cannot run on that device.
        Unconfirmed: the finding does not reproduce, so it is no bug of the engine.
    """
    kind = kind if kind is not None else target_kind(config.engine)
    lacks = lacking(trace, kind.capabilities_under(config))
    assert lacks is None, f"engine {kind.name}: {lacks}"
    unmet = kind.unmet(trace)
    if unmet is not None:
        return Vacuous(stats=NO_STATS, missing=(unmet,))
    kind.prepare(config)
    verdict = _verdict_of_repetition(trace, value_cache, options, kind, config) or judge_trace(
        trace, value_cache, options, kind, config
    )
    # A verdict must depend on the trace alone, not on earlier traces of the engine: judge again on a new engine.
    if not is_finding(verdict) or not kind.renew(config):
        return verdict
    # The message of a crash depends on the race detector, and a reported finding has its race.
    races = options.races or options.confirm != "never" or isinstance(verdict, Crashed)
    until = options.compared.until if options.compared is not None else "all"
    again = replace(options, races=races, compared=References(until))
    verdict = judge_trace(trace, value_cache, again, kind, config)
    confirmation = kind.confirmation(config) if options.confirm != "never" else None
    if confirmation is None or not isinstance(verdict, Diverged | Crashed | Stuck):
        return verdict
    steps = verdict.stats.steps
    if isinstance(verdict, Stuck) and isinstance(verdict.waits, NotDrained):
        # Idle steps cost little time with slower kernels.
        steps -= verdict.waits.idle
    if steps > confirmation.steps_max:
        why = fact("unconfirmed", steps=steps, steps_max=confirmation.steps_max)
        return verdict.model_copy(update={"unconfirmed": why})
    if options.confirm == "later":
        return verdict.model_copy(update={"unconfirmed": fact("unconfirmed_yet")})
    return _confirm(trace, value_cache, replace(again, compared=References(until)), kind, config, confirmation)


def _verdict_of_repetition(
    trace: Trace, value_cache: ModelValueCache, options: Options, kind: TargetKind, config: RunConfig
) -> Verdict | None:
    """Return the verdict of a run with the same records as a correct run; None if one differs.

    In that case the trace runs again and is judged; on simulated lanes that run is exactly the same.
    """
    agreed = options.compared.agreed if options.compared is not None else None
    if agreed is None or not agreed.is_copy_of(trace) or config.device == "cuda":
        return None
    try:
        stats = Run(trace, value_cache, options, kind, config).repeats(agreed)
    except DeviceError:
        raise
    except Exception:
        return None
    return _as_expected(trace, stats) if stats is not None else None


def judge_trace(
    trace: Trace, value_cache: ModelValueCache, options: Options, kind: TargetKind, config: RunConfig
) -> Verdict:
    """Run a trace with all judges; without a decision log, also compare with reference runs."""
    try:
        run = Run(trace, value_cache, options, kind, config)
    except DeviceError:
        raise
    except Exception as error:
        where = site_of(error)
        made_at = ranked_locations(None, kind.places, crash_locations([where], kind.places))
        return Crashed(stats=NO_STATS, error=error_text(error), where=where, made_at=made_at)
    ended = run.finish()
    if not isinstance(ended, FinishedRun):
        return _with_locations(ended, kind.places, trace)
    found, stats = ended.found, ended.stats
    if kind.capabilities.logs_decisions:
        return _as_expected(trace, stats) if found is None else Diverged(stats=stats, difference=found)
    explicit = run.explicit()
    requests = requests_of(explicit, ended.taken)
    comparison = Comparison(trace, explicit, value_cache, kind, config, options.compared or References(), requests)
    if found is None:
        found = comparison.first_difference(ended.outputs, stats.steps, ended.history)
        found = found or comparison.first_loss(ended.history)
        probes = {**stats.probes, NEAR_TIE: len(comparison.ties)} if comparison.ties and found is None else stats.probes
        stats = stats.model_copy(update={"captures": comparison.count, "probes": probes, "work": comparison.work})
    elif found.plane == PLANE:
        found = found.model_copy(update={"elsewhere": comparison.elsewhere(found)})
    if found is None:
        return _as_expected(trace, stats)
    return Diverged(
        stats=stats, difference=with_source_locations(found, kind.places, with_accepted_submits(explicit, ended.taken))
    )


def _with_locations(verdict: Crashed | Diverged | Stuck, places: Places, trace: Trace) -> Verdict:
    """Add the source locations of its cause to the verdict of a crash or hang."""
    match verdict:
        case Crashed():
            before = with_source_locations(verdict.before, places, trace) if verdict.before is not None else None
            made_at = ranked_locations(
                verdict.missing_order, places, crash_locations((verdict.where, *verdict.callers), places)
            )
            return verdict.model_copy(update={"before": before, "made_at": made_at})
        case Stuck():
            made_at = ranked_locations(verdict.missing_order, places, places.get(("liveness", "progress"), ()))
            return verdict.model_copy(update={"made_at": made_at})
        case Diverged():
            return verdict


def _confirm(
    trace: Trace,
    value_cache: ModelValueCache,
    options: Options,
    kind: TargetKind,
    config: RunConfig,
    confirmation: Confirmation,
) -> Verdict:
    """Rerun a finding with interpreted kernels, and return that run's verdict.

    Raises:
        Unconfirmed: that run has no finding.
    """
    kind.renew(confirmation.config)
    verdict = judge_trace(trace, value_cache, options, kind, confirmation.config)
    if not is_finding(verdict):
        kind.restart(config)
        is_there = is_finding(judge_trace(trace, value_cache, options, kind, config))
        raise Unconfirmed(confirmation.otherwise if is_there else _LEFT_BEHIND)
    return verdict


def _as_expected(trace: Trace, stats: Stats) -> Verdict:
    """Return `Agreed`, or `Vacuous` if an expected probe or a planted fault was not reached."""
    missing = tuple(not_hit(trace, stats))
    return Vacuous(stats=stats, missing=missing) if missing else Agreed(stats=stats)


def not_hit(trace: Trace, stats: Stats) -> list[Fact]:
    """Return a message for each probe of `expect` and each planted fault that was not reached."""
    seen = stats.probes
    probes = [
        fact("probe", probe=probe, least=least, seen=seen.get(probe, 0))
        for probe, least in trace.expect.items()
        if seen.get(probe, 0) < least
    ]
    faults = [fact("fault_not_reached", fault=fault) for fault in trace.faults if f"fault {fault}" not in seen]
    return probes + faults

"""Judge the generated traces of a hunt's shard; run candidates of the shrinker.

Verifies:
- each trace under eager with the race detector, under lazy, and under one random schedule;
- that all three schedules capture the same bytes, because a run without a race covers every schedule of its trace.

On an engine with costly steps most traces are sampled: they run once, under one of these schedules with the race
detector, and once more as a reference run. Traces with a finding are then judged in full. A finding that must be
confirmed with slower kernels is reported as unconfirmed. A shard of a costly engine can end at its first finding.

Does not verify: other schedules (`Worker.judge` searches them after a race is reported).
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Literal, NamedTuple

from scenarios.capabilities import lacking
from scenarios.events import Policy, Schedule
from scenarios.generation.shards import Shard, with_faults
from scenarios.generation.situation import Generated
from scenarios.spec import Value
from scenarios.trace import Trace
from workers.faults.registry import FAULTS
from workers.oracle.model_values import ModelValueCache
from workers.record.evidence import RACES
from workers.record.names import Count
from workers.record.rules import Reference
from workers.record.verdict import Agreed, Crashed, Diverged, Lost, Stuck, Vacuous, Work, is_finding, sums_of_work
from workers.run.check import check
from workers.run.coverage import Coverage, coverage_of, joined_coverage
from workers.run.engine_run import Confirm, Options
from workers.run.references import References
from workers.run.schedules import differs, has_lanes
from workers.shrink.fingerprint import Signature, signature_of
from workers.shrink.shrinker import Finding, TriedCandidates
from workers.targets.registry import target_kind
from workers.targets.target import DEFAULT_CONFIG, RunConfig

_SHORT = 8
# The schedules of each trace, in this order, up to the first finding.
POLICIES: tuple[Policy, ...] = ("eager", "lazy", "random")
# On a costly engine one trace in `_FULL_EVERY` is judged in full; the others run under one policy, and are compared
# with one reference run, and some also with the release.
_FULL_EVERY = 25
_SAMPLES: tuple[tuple[Policy, Reference, bool], ...] = (
    ("eager", Reference.ALONE, False),
    ("lazy", Reference.SYNCHRONOUS, False),
    ("eager", Reference.ALONE, True),
    ("random", Reference.SYNCHRONOUS, False),
)


class Hit(Value):
    """A bug that `count` traces of a shard met, first `trace`, which has number `index`.

    `situations` counts, by situation, the traces that found it.
    """

    signature: Signature
    count: Count
    index: Count
    trace: Trace
    verdict: Finding
    situations: dict[str, Count] = {}

    @classmethod
    def of(cls, verdict: Finding, trace: Trace, index: int, situations: Iterable[str]) -> "Hit":
        """Return the hit for a bug that one trace has met."""
        signature = signature_of(verdict, trace)
        assert signature is not None, "a finding has a signature"
        have = dict.fromkeys(situations, 1)
        return cls(signature=signature, count=1, index=index, trace=trace, verdict=verdict, situations=have)

    def plus(self, other: "Hit") -> "Hit":
        """Return this hit with the traces of another hit of the same bug added."""
        situations = dict(Counter(self.situations) + Counter(other.situations))
        return self.model_copy(update={"count": self.count + other.count, "situations": situations})


class ShardReport(Value):
    """Result of a shard: hits, coverage and counts of traces.

    - `runs`: number of runs (traces times schedules); `steps`, `commits`, `captures`: sums over all runs.
    - `reached`: number of traces in which every fault was reached.
    - `lengths`: steps of each trace; `digests`: first characters of the digest of each trace's captures.
    - `probes`: number of traces that hit each probe; `firsts`: index of the first of these traces.
    - `coverage`: number of traces by policies, event and plane.
    - `ran`: edited functions of the engine's sources that have run and were not reported before; depends on earlier
      traces.
    - `situations`: number of traces by the situation that they were generated with.
    - `work`: work of the runs that were compared, summed over their traces, see `Stats.work`.
    """

    traces: Count
    runs: Count
    steps: Count
    commits: Count
    captures: Count
    reached: Count
    lengths: tuple[Count, ...]
    digests: tuple[str, ...]
    probes: dict[str, Count]
    firsts: dict[str, Count]
    hits: tuple[Hit, ...]
    coverage: Coverage = {}
    ran: tuple[str, ...] = ()
    situations: dict[str, Count] = {}
    work: dict[str, Work] = {}


def shard_traces(shard: Shard, config: RunConfig = DEFAULT_CONFIG) -> list[Trace]:
    """Return a shard's explicit traces (prompts as token ids), adapted to engine and faults."""
    return [each.trace for each in generated_traces(shard, config)]


def generated_traces(shard: Shard, config: RunConfig = DEFAULT_CONFIG) -> list[Generated]:
    """Return a shard's explicit traces, each with the situations it was generated for."""
    requires = tuple(each for fault in shard.faults for each in FAULTS[fault].requires)
    found = shard.generated(target_kind(config.engine).capabilities_under(config))
    return [each._replace(trace=with_faults(each.trace, requires, shard.faults).explicit()) for each in found]


def judge_shard(
    shard: Shard,
    value_cache: ModelValueCache,
    begin: Callable[[Trace], None],
    config: RunConfig = DEFAULT_CONFIG,
    *,
    to_first_finding: bool = False,
) -> ShardReport:
    """Judge the traces of a shard; `begin` is called with each trace before it runs.

    With `to_first_finding` the report of a costly engine ends with the first trace with a finding, so it may have fewer
    traces than the shard.
    """
    ends_early = to_first_finding and target_kind(config.engine).capabilities.is_costly
    found: dict[str, Hit] = {}
    totals: Counter[str] = Counter()
    probes: Counter[str] = Counter()
    firsts: dict[str, int] = {}
    lengths, digests, coverages = [], [], list[Coverage]()
    work: dict[str, Work] = {}
    counts: Counter[str] = Counter()
    for index, (generated, situations) in enumerate(generated_traces(shard, config), shard.first):
        begin(generated)
        counts.update(situations)
        policies, verdicts, trace = judged_by_sample(generated, value_cache, config, "later")
        work = sums_of_work([work, *(verdict.stats.work for verdict in verdicts)])
        for stats in (verdict.stats for verdict in verdicts):
            totals.update(runs=1, steps=stats.steps, commits=stats.commits, captures=stats.captures)
        first, last = verdicts[0], verdicts[-1]
        # Only the first run has the race detector.
        planes = set(first.stats.planes)
        coverages.append(coverage_of(policies, generated, sorted(planes - {RACES})))
        coverages.append(coverage_of(policies[:1], generated, planes & {RACES}))
        totals["reached"] += not isinstance(first, Vacuous)
        lengths.append(first.stats.steps)
        digests.append(first.stats.digest[:_SHORT])
        hit_here = [probe for probe in first.stats.probes if not probe.startswith("fault ")]
        probes.update(hit_here)
        firsts = {**dict.fromkeys(hit_here, index), **firsts}
        if not isinstance(last, Agreed | Vacuous):
            hit = Hit.of(last, trace, index, situations)
            found[hit.signature.bug] = found[hit.signature.bug].plus(hit) if hit.signature.bug in found else hit
            if ends_early:
                break
    return ShardReport(
        traces=len(lengths),
        runs=totals["runs"],
        steps=totals["steps"],
        commits=totals["commits"],
        captures=totals["captures"],
        reached=totals["reached"],
        lengths=tuple(lengths),
        digests=tuple(digests),
        probes=dict(sorted(probes.items())),
        firsts=dict(sorted(firsts.items())),
        hits=tuple(found.values()),
        coverage=joined_coverage(coverages),
        situations=dict(sorted(counts.items())),
        work=work,
    )


Ended = Agreed | Vacuous | Diverged | Crashed | Stuck


class TraceVerdicts(NamedTuple):
    """Verdicts of one trace, one per schedule policy (eager, lazy ...)."""

    policies: tuple[Policy, ...]
    verdicts: list[Ended]
    trace: Trace


def judged_by_sample(
    trace: Trace, value_cache: ModelValueCache, config: RunConfig, confirm: Confirm = "now"
) -> TraceVerdicts:
    """Judge a trace, on a costly engine usually under one schedule with one reference run."""
    if not target_kind(config.engine).capabilities.is_costly or trace.seed % _FULL_EVERY == 0:
        return judged_in_full(trace, value_cache, config, confirm)
    policy, reference, with_release = _SAMPLES[trace.seed % len(_SAMPLES)]
    if not has_lanes(config):
        policy = POLICIES[0]
    sampled = trace.model_copy(update={"schedule": _schedule(trace, policy)})
    options = Options(compared=References(only=reference, with_release=with_release), confirm="never")
    verdict = check(sampled, value_cache, options, config=config)
    if is_finding(verdict):
        full = judged_in_full(trace, value_cache, config, confirm)
        if is_finding(full.verdicts[-1]):
            return full
        verdict = check(sampled, value_cache, replace(options, confirm=confirm), config=config)
    assert not isinstance(verdict, Lost), "a trace that ran has a verdict"
    return TraceVerdicts((policy,), [verdict], sampled)


def judged_in_full(
    trace: Trace, value_cache: ModelValueCache, config: RunConfig, confirm: Confirm = "now"
) -> TraceVerdicts:
    """Judge a trace under eager, lazy and a random schedule, up to the first finding."""
    verdicts: list[Ended] = []
    compared = References()
    for policy in POLICIES if has_lanes(config) else POLICIES[:1]:
        schedule = _schedule(trace, policy)
        trace = trace.model_copy(update={"schedule": schedule})
        options = Options(races=not verdicts, compared=compared, confirm=confirm)
        verdict = check(trace, value_cache, options, config=config)
        assert not isinstance(verdict, Lost), "a trace that ran has a verdict"
        verdicts.append(verdict)
        if not isinstance(verdict, Agreed | Vacuous):
            break
        first = verdicts[0]
        assert isinstance(first, Agreed | Vacuous), "the first finding is the last run"
        if verdict.stats.digest != first.stats.digest and _still_differs(trace, value_cache, config):
            verdicts[-1] = differs(verdict, first, schedule)
            break
    return TraceVerdicts(POLICIES[: len(verdicts)], verdicts, trace)


def _schedule(trace: Trace, policy: Policy) -> Schedule:
    return Schedule(policy=policy, seed=trace.seed if policy == "random" else 0)


def _still_differs(trace: Trace, value_cache: ModelValueCache, config: RunConfig) -> bool:
    """Return whether new engines, too, capture other values than under the eager schedule."""
    digests = set()
    for schedule in (Schedule(), trace.schedule):
        if not target_kind(config.engine).renew(config):
            return True
        again = trace.model_copy(update={"schedule": schedule})
        verdict = check(again, value_cache, Options(races=False), config=config)
        assert not isinstance(verdict, Lost), "a trace that ran has a verdict"
        digests.add(verdict.stats.digest)
    return len(digests) > 1


def first_matching_candidate(
    candidates: list[Trace], target: Signature, value_cache: ModelValueCache, config: RunConfig = DEFAULT_CONFIG
) -> TriedCandidates:
    """Run candidates (smaller traces) up to the first that has the finding `target`.

    Candidates that the engine cannot run are skipped.
    """
    capabilities = target_kind(config.engine).capabilities_under(config)
    for count, candidate in enumerate(candidates, 1):
        if lacking(candidate, capabilities) is not None:
            continue
        # The final candidate of the shrinker is judged again, and confirmed then.
        options = Options(compared=References(_last_reference(target)), confirm="never")
        verdict = check(candidate, value_cache, options, config=config)
        signature = signature_of(verdict, candidate)
        if signature is not None and target.matches(signature):
            assert isinstance(verdict, Diverged | Crashed | Stuck), "only a finding has a signature"
            return TriedCandidates(count=count, found=verdict)
    return TriedCandidates(count=len(candidates))


def _last_reference(target: Signature) -> Reference | Literal["all", "none"]:
    """Return the last kind of reference run needed to detect the finding, `all` or `none`."""
    if target.reference is not None:
        return target.reference
    return "all" if target.plane == "liveness" else "none"

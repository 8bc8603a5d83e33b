"""Arithmetic on shard reports: sums, and the join of parts of a shard."""

from collections import Counter
from dataclasses import dataclass, field

from cluster.campaigns.triage import killed
from scenarios.events import Schedule
from scenarios.shards import Shard
from workers.run.coverage import joined_coverage
from workers.run.shard import Hit, ShardReport, shard_traces
from workers.shrink.fingerprint import signature_of


@dataclass(slots=True)
class Tally:
    """Sums over the traces of a hunt, or of one generator in it.

    `lengths` counts traces by engine steps, `probes` traces that hit each, `bugs` those that met each.
    """

    traces: int = 0
    runs: int = 0
    steps: int = 0
    commits: int = 0
    captures: int = 0
    reached: int = 0
    lengths: Counter[int] = field(default_factory=Counter)
    probes: Counter[str] = field(default_factory=Counter)
    bugs: Counter[str] = field(default_factory=Counter)

    def add(self, report: ShardReport) -> None:
        """Add the report of a shard."""
        for name in ("traces", "runs", "steps", "commits", "captures", "reached"):
            setattr(self, name, getattr(self, name) + getattr(report, name))
        self.lengths.update(report.lengths)
        self.probes.update(report.probes)
        self.bugs.update({hit.signature.bug: hit.count for hit in report.hits})


def deadly_hit(shard: Shard, deaths: tuple[str, ...]) -> Hit:
    """Return the hit of a trace, alone in its shard, that kills its workers."""
    (trace,) = shard_traces(shard)
    trace = trace.model_copy(update={"schedule": Schedule()})
    verdict = killed(deaths)
    signature = signature_of(verdict, trace)
    assert signature is not None, "a finding has a signature"
    return Hit(signature=signature, count=1, index=shard.first, trace=trace, verdict=verdict)


def unjudged_report(*hits: Hit) -> ShardReport:
    """Return the report of a shard that was not judged, or whose only trace kills its workers: a hit."""
    return ShardReport(
        traces=len(hits),
        runs=0,
        steps=0,
        commits=0,
        captures=0,
        reached=0,
        lengths=(),
        digests=(),
        probes={},
        firsts={},
        hits=hits,
    )


def joined(reports: list[ShardReport]) -> ShardReport:
    """Join the reports of neighbouring traces into one."""
    tally = Tally()
    hits: dict[str, Hit] = {}
    firsts: dict[str, int] = {}
    for report in reports:
        tally.add(report)
        firsts = {**report.firsts, **firsts}
        for hit in report.hits:
            first = hits.setdefault(hit.signature.bug, hit)
            if first is not hit:
                hits[hit.signature.bug] = first.model_copy(update={"count": first.count + hit.count})
    return ShardReport(
        traces=tally.traces,
        runs=tally.runs,
        steps=tally.steps,
        commits=tally.commits,
        captures=tally.captures,
        reached=tally.reached,
        lengths=tuple(length for report in reports for length in report.lengths),
        digests=tuple(digest for report in reports for digest in report.digests),
        probes=dict(sorted(tally.probes.items())),
        firsts=dict(sorted(firsts.items())),
        hits=tuple(hits.values()),
        coverage=joined_coverage(report.coverage for report in reports),
    )

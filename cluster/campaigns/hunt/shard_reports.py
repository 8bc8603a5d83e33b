"""Sums of shard reports: by hunt, by generator, and of a shard that ran in parts."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from cluster.campaigns.hunt.jobs import ShardJobs
from cluster.campaigns.triage import worker_loss_verdict
from scenarios.events import Schedule
from scenarios.generation.shards import GENERATORS, TRACES_PER_SHARD, Generator, Shard
from workers.record.verdict import Work, sums_of_work
from workers.run.coverage import joined_coverage
from workers.run.shard import Hit, ShardReport, generated_traces

# Fields of a report that are added up.
SUMS = ("traces", "runs", "steps", "commits", "captures", "reached")


@dataclass(slots=True)
class Tally:
    """Sums over a hunt's traces, or over those of one generator.

    `lengths` counts traces by engine steps, `probes` the traces that hit each probe, `bugs` the traces with each
    finding, `situations` the traces with each situation; `bugs_of` counts these by finding. `work` is the work of the
    runs that were compared.
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
    situations: Counter[str] = field(default_factory=Counter)
    bugs_of: dict[str, Counter[str]] = field(default_factory=dict)
    work: dict[str, Work] = field(default_factory=dict)

    def add(self, report: ShardReport) -> None:
        """Add the report of a shard."""
        for name in SUMS:
            setattr(self, name, getattr(self, name) + getattr(report, name))
        self.lengths.update(report.lengths)
        self.probes.update(report.probes)
        self.bugs.update({hit.signature.bug: hit.count for hit in report.hits})
        self.situations.update(report.situations)
        self.work = sums_of_work([self.work, report.work])
        for hit in report.hits:
            for situation, count in hit.situations.items():
                self.bugs_of.setdefault(situation, Counter())[hit.signature.bug] += count

    @property
    def sums(self) -> dict[str, Any]:
        """Return the sums that are plain numbers, by field name."""
        return {name: getattr(self, name) for name in SUMS}


class Totals:
    """Sums over the reports of a hunt's first `num_shards` shards, in shard order.

    `tally` is for all traces, `shares` for the traces of each generator.

    `firsts` has the number of the first trace that hit each probe. `num_done` counts the traces of all shards with a
    report, including lost ones and those that wait for earlier shards. `ran` are the executed edited functions.
    """

    def __init__(self, jobs: ShardJobs) -> None:
        self.tally = Tally()
        self.shares: dict[Generator, Tally] = {generator: Tally() for generator in GENERATORS}
        self.firsts: dict[str, int] = {}
        self.ran: set[str] = set()
        self.num_shards = self.num_done = 0
        self._jobs = jobs
        self._waiting: dict[int, ShardReport] = {}

    def add(self, number: int, report: ShardReport) -> None:
        """Add the report of a shard; it counts once all earlier shards have reports."""
        self._waiting[number] = report
        self.ran.update(report.ran)
        self.num_done += self._jobs.job("hunt", number).shard.traces

    def fold(self) -> Iterator[tuple[int, ShardReport]]:
        """Add up the reports until one is missing; yield each with its shard number."""
        while self.num_shards in self._waiting:
            number, report = self.num_shards, self._waiting.pop(self.num_shards)
            self.num_shards += 1
            self.tally.add(report)
            self.shares[self._jobs.job("hunt", number).shard.generator].add(report)
            for probe, index in report.firsts.items():
                self.firsts.setdefault(probe, number * TRACES_PER_SHARD + index)
            yield number, report


def deadly_hit(shard: Shard, deaths: tuple[str, ...]) -> Hit:
    """Return the finding of a one-trace shard that kills every worker."""
    ((trace, situations),) = generated_traces(shard)
    trace = trace.model_copy(update={"schedule": Schedule()})
    return Hit.of(worker_loss_verdict(deaths), trace, shard.first, situations)


def unjudged_report(*hits: Hit) -> ShardReport:
    """Return an empty report, for a shard that was not judged.

    `hits` are the traces in it that kill their workers.
    """
    situations = dict(sum((Counter(hit.situations) for hit in hits), Counter[str]()))
    return join_reports([]).model_copy(update={"traces": len(hits), "hits": hits, "situations": situations})


def join_reports(reports: list[ShardReport]) -> ShardReport:
    """Return one report for consecutive parts of a shard."""
    tally = Tally()
    hits: dict[str, Hit] = {}
    firsts: dict[str, int] = {}
    for report in reports:
        tally.add(report)
        firsts = {**report.firsts, **firsts}
        for hit in report.hits:
            first = hits.get(hit.signature.bug)
            hits[hit.signature.bug] = hit if first is None else first.plus(hit)
    return ShardReport(
        **tally.sums,
        lengths=tuple(length for report in reports for length in report.lengths),
        digests=tuple(digest for report in reports for digest in report.digests),
        probes=dict(sorted(tally.probes.items())),
        firsts=dict(sorted(firsts.items())),
        hits=tuple(hits.values()),
        coverage=joined_coverage(report.coverage for report in reports),
        situations=dict(sorted(tally.situations.items())),
        ran=tuple(dict.fromkeys(function for report in reports for function in report.ran)),
        work=tally.work,
    )

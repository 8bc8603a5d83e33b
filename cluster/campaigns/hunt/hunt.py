"""Hunt: the state machine of a campaign that judges generated traces.

Its only side effect is the ledger of results.

Reports are processed in the order of their shards, not of their arrival: the findings of a hunt, their counts and
their first traces do not depend on the number of workers.
"""

from pathlib import Path

from cluster.campaigns.hunt.canary import CanarySearch
from cluster.campaigns.hunt.findings import Findings
from cluster.campaigns.hunt.jobs import HuntSettings, Ledger, ShardJobs
from cluster.campaigns.hunt.repeats import Repeats
from cluster.campaigns.hunt.shard_reports import Totals, deadly_hit, unjudged_report
from cluster.campaigns.hunt.split_shards import SplitShards
from cluster.campaigns.planner import Task
from cluster.dispatch.coordinator import Record
from cluster.dispatch.job import ShardJob
from cluster.storage.corpus import NO_CORPUS, Corpus
from scenarios.generation.shards import TRACES_PER_SHARD
from workers.record.verdict import Lost
from workers.run.shard import ShardReport

UNJUDGED_MAX = 3


class Hunt:
    """A hunt: shards of traces in order, canary search, repeated shards and findings.

    `num_traces` is its length, None for no bound.
    """

    def __init__(
        self, settings: HuntSettings, ledger: Ledger, running: Path, num_traces: int | None, corpus: Corpus = NO_CORPUS
    ) -> None:
        self.settings = settings
        self.jobs = ShardJobs(settings, running, num_traces, corpus)
        self.totals = Totals(self.jobs)
        self.canary = CanarySearch(self.jobs, ledger)
        self.repeats = Repeats(self.jobs, ledger)
        self.findings = Findings(settings, ledger)
        self._split = SplitShards(self.jobs, ledger)
        self._ledger = ledger
        self._next = 0
        self._out: dict[str, ShardJob] = {}
        self._lost: dict[int, str] = {}

    @property
    def unjudged(self) -> dict[int, str]:
        """Return why shards were not judged completely, by shard number."""
        return self._lost | self.findings.refuted

    @property
    def num_done(self) -> int:
        """Return the number of judged or lost traces.

        It includes the traces of shards that wait for earlier ones.
        """
        return self.totals.num_done + self._split.num_done

    def tasks(self, slots: int, room: int, may_begin: bool) -> list[Task]:
        """Return the next jobs: for findings, then for started shards, then new shards.

        Jobs of findings come first, then required ones of earlier shards, then new shards up to `room`.
        """
        self._take_known()
        tasks = [*self.findings.tasks(slots), *self._split.tasks(), *self.repeats.tasks()]
        canary = self.canary.task(self.totals.num_shards)
        if canary is not None:
            tasks.append(canary)
        while len(tasks) < room and may_begin and self._has_more():
            tasks.append(Task(self.jobs.job("hunt", self._next)))
            self._next += 1
        self._out |= {task.job.key: task.job for task in tasks if isinstance(task.job, ShardJob)}
        return tasks

    def is_done(self, may_begin: bool) -> bool:
        """Whether no job runs and none is left, if the last call of `tasks` returned nothing."""
        return not (self._out or self.findings.num_open or (may_begin and self._has_more()))

    def take(self, record: Record, slot: int) -> None:
        """Process the result of one of the hunt's jobs: of a finding, or of a shard."""
        job, result = self._out.pop(record.job, None), record.result
        if job is None:
            self.findings.take(record)
        elif isinstance(result, ShardReport):
            self._take_report(job, result, slot)
        else:
            assert isinstance(result, Lost), "a shard is answered by a report"
            self._take_loss(job, result, record.deaths)
        self._fold()
        self.findings.close()

    def _has_more(self) -> bool:
        bound = self.jobs.num_shards
        return (bound is None or self._next < bound) and len(self.unjudged) < UNJUDGED_MAX

    def _take_known(self) -> None:
        """Process the shard reports that an earlier run of the campaign stored, in shard order."""
        while self._has_more():
            job = self.jobs.job("hunt", self._next)
            known = self._ledger.shard(job.key)
            if known is None:
                break
            self._next += 1
            self._take_report(job, known, None)
            self._fold()
        self.findings.close()

    def _take_report(self, job: ShardJob, report: ShardReport, slot: int | None) -> None:
        number = job.shard.number
        match job.role:
            case "canary":
                self.canary.take(report)
            case "again":
                self.repeats.take(number, report, slot)
            case "hunt" if number in self._split or report.traces < job.shard.traces:
                whole = self._split.take(job.shard, report)
                if whole is not None:
                    self._judged(number, whole, slot)
            case "hunt":
                self._judged(number, report, slot)

    def _judged(self, number: int, report: ShardReport, slot: int | None) -> None:
        self.totals.add(number, report)
        self.repeats.add(number, report, slot)

    def _take_loss(self, job: ShardJob, lost: Lost, deaths: tuple[str, ...]) -> None:
        """Process the loss of a shard: if it killed its workers, run its traces one by one.

        A shard that kills its workers is split to find the trace that does.
        """
        shard = job.shard
        match job.role:
            case "canary":
                self.canary.take(None)
            case "again":
                self._lost[shard.number] = f"run again: {lost.reason}"
            case "hunt" if not deaths:
                # If the shard was split, another of its traces may have been lost before.
                if shard.number not in self._lost:
                    self._lost[shard.number] = lost.reason
                    self.totals.add(shard.number, unjudged_report(*self._split.give_up(shard.number)))
            case "hunt" if shard.traces == 1:
                report = unjudged_report(deadly_hit(shard, deaths))
                self._ledger.keep_shard(job, 0, report)
                self._take_report(job, report, None)
            case "hunt":
                self._split.split(shard)

    def _fold(self) -> None:
        for number, report in self.totals.fold():
            for hit in report.hits:
                self.findings.add(hit, number * TRACES_PER_SHARD + hit.index)

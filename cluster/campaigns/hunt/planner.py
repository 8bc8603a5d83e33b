"""Planner of a hunt in a campaign folder; it resumes a stopped hunt."""

from collections.abc import Callable, Collection

from cluster.campaigns.exit_codes import EXIT_AGREED, EXIT_FOUND, EXIT_NOT_JUDGED
from cluster.campaigns.hunt.hunt import Hunt
from cluster.campaigns.hunt.jobs import HuntSettings
from cluster.campaigns.hunt.news import NewFinding, News
from cluster.campaigns.hunt.shard_reports import unjudged_report
from cluster.campaigns.planner import Counts, Task
from cluster.dispatch.coordinator import Record
from cluster.dispatch.job import AnyJob, ShardJob
from cluster.storage.corpus import NO_CORPUS, Corpus
from cluster.storage.provenance import PlannedWork
from cluster.storage.store import Store
from scenarios.generation.shards import TRACES_PER_SHARD
from workers.record.verdict import Lost
from workers.run.shard import ShardReport


class HuntPlanner:
    """Planner of a hunt whose results, and snapshot of the corpus, are in a store.

    New shards are started while `may_begin` returns True.
    """

    def __init__(
        self, settings: HuntSettings, store: Store, num_traces: int | None, corpus: Corpus = NO_CORPUS
    ) -> None:
        settings = settings.model_copy(update={"corpus": corpus.digest})
        store.keep_settings(settings.plan().model_dump_json())
        store.plan(PlannedWork(traces=num_traces))
        corpus.keep(store.folder)
        self.hunt = Hunt(settings, store, store.folder / "running", num_traces, corpus=corpus)
        self.may_begin: Callable[[], bool] = lambda: True
        self._num_traces = num_traces
        self.store = store
        self._begins = True
        self._met: list[News] = []
        self._bugs_met: set[str] = set()
        self._jobs: dict[str, AnyJob] = {}
        self._slot: dict[str, int] = {}

    def tasks(self, slots: int, room: int) -> list[Task]:
        self._begins = self.may_begin()
        tasks = self.hunt.tasks(slots, room, self._begins)
        self._jobs |= {task.job.key: task.job for task in tasks}
        return tasks

    def begin(self, job: AnyJob, attempt: int, slot: int) -> None:
        self._slot[job.key] = slot
        # The worker records the traces of a shard itself; lost candidates of the shrinker are proposed again.
        if isinstance(job, ShardJob):
            self.store.begin_attempt(job.key, attempt, slot)

    def take(self, record: Record) -> None:
        job = self._jobs.pop(record.job)
        report = record.result
        # A report that ended early with a finding is first joined with the reports of the shard's other traces.
        if isinstance(job, ShardJob) and isinstance(report, ShardReport) and report.traces == job.shard.traces:
            self.store.keep_shard(job, record.attempt, report)
        if isinstance(job, ShardJob) and isinstance(report, ShardReport) and job.role == "hunt":
            self._record_new_findings(job.shard.number, report)
        self.hunt.take(record, self._slot.pop(record.job, -1))
        is_lost = isinstance(record.result, Lost)
        if isinstance(job, ShardJob) and is_lost and job.role != "canary" and job.shard.number in self.hunt.unjudged:
            self.store.keep_unjudged(job, unjudged_report())

    def _record_new_findings(self, shard: int, report: ShardReport) -> None:
        """Store findings with a new fingerprint at once, so that they are shown."""
        for hit in report.hits:
            bug = hit.signature.bug
            if bug not in self._bugs_met and bug not in self.hunt.findings.by_bug:
                self._met.append(NewFinding(shard * TRACES_PER_SHARD + hit.index, bug, hit.verdict))
            self._bugs_met.add(bug)

    def take_news(self) -> list[News]:
        """Return the findings that were discovered, confirmed or dropped since the last call."""
        met, self._met = self._met, []
        return [*met, *self.hunt.findings.take_news()]

    def is_done(self) -> bool:
        return not self._jobs and self.hunt.is_done(self._begins)

    def counts(self) -> Counts:
        findings = self.hunt.findings
        return Counts(self.hunt.num_done, self._num_traces, len(findings), findings.num_open)

    def bugs(self) -> list[str]:
        """Return the fingerprints of the findings, in the order of discovery."""
        return list(dict.fromkeys(each.state.same_as or each.state.bug for each in self.hunt.findings))

    def exit_code(self, known: Collection[str] = ()) -> int:
        """Return the hunt's exit code; new findings count more than missing verdicts."""
        hunt = self.hunt
        if any(bug not in known for bug in self.bugs()):
            return EXIT_FOUND
        is_proven = not hunt.settings.canary or (hunt.canary.rounds and not hunt.canary.is_blind)
        gaps = not is_proven or hunt.repeats.mismatches or hunt.unjudged
        is_judged = hunt.totals.tally.traces and not gaps and not self.store.contradictions()
        return EXIT_AGREED if is_judged else EXIT_NOT_JUDGED

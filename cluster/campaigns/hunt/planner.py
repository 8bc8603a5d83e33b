"""Hunt: planner of generated traces in a campaign directory, which goes on where it was stopped."""

from collections.abc import Callable, Collection
from pathlib import Path

from cluster.campaigns.exit_codes import EXIT_AGREED, EXIT_FOUND, EXIT_NOT_JUDGED
from cluster.campaigns.hunt.hunt import Hunter, HuntSettings
from cluster.campaigns.planner import Counts, Task
from cluster.dispatch.coordinator import Record
from cluster.dispatch.job import AnyJob, ShardJob
from cluster.storage.artefact import schema_line, write_atomically
from cluster.storage.corpus import NO_CORPUS, Corpus
from cluster.storage.store import Store
from scenarios import codec
from scenarios.codec import comment
from scenarios.events import Schedule
from scenarios.probes import PROBES
from workers.run.shard import ShardReport

SELDOM_FOLDER = "seldom"
SELDOM_SHARE_MAX = 0.02


class Hunt:
    """A hunter with a store under it; a snapshot of its corpus is kept.

    New shards are begun while `may_begin` says so.
    """

    def __init__(
        self,
        settings: HuntSettings,
        store: Store,
        num_traces: int | None,
        corpus: Corpus = NO_CORPUS,
        may_begin: Callable[[], bool] = lambda: True,
    ) -> None:
        store.keep_settings(settings.model_dump_json())
        corpus.keep(store.folder)
        self.hunter = Hunter(settings, store, store.folder / "running", num_traces, corpus=corpus)
        self.may_begin = may_begin
        self._num_traces = num_traces
        self.store = store
        self._begins = True
        self._jobs: dict[str, AnyJob] = {}
        self._slot: dict[str, int] = {}

    def tasks(self, slots: int, room: int) -> list[Task]:
        """Return what is owed, and new shards if there is room for them."""
        self.hunter.slots = slots
        self._begins = self.may_begin()
        tasks = self.hunter.tasks(room, self._begins)
        self._jobs |= {task.job.key: task.job for task in tasks}
        return tasks

    def begin(self, job: AnyJob, attempt: int, slot: int) -> None:
        """Write an attempt of a shard down; the shrinker's candidates are proposed again."""
        self._slot[job.key] = slot
        # A shard's traces are written ahead by its worker.
        if isinstance(job, ShardJob):
            self.store.begin_attempt(job.key, attempt, slot)

    def take(self, record: Record) -> None:
        """Write the report of a shard down, and go on from it."""
        job = self._jobs.pop(record.job)
        if isinstance(job, ShardJob) and isinstance(record.result, ShardReport):
            self.store.keep_shard(job, record.attempt, record.result)
        self.hunter.take(record.job, record.result, record.deaths, self._slot.pop(record.job, -1))

    def is_done(self) -> bool:
        """Whether all shards have reports and all findings are closed."""
        return not self._jobs and self.hunter.is_done(self._begins)

    def counts(self) -> Counts:
        """Return the number of traces judged, of all, and of findings."""
        hunter = self.hunter
        return Counts(hunter.tally.traces, self._num_traces, len(hunter.findings), hunter.num_open)

    def bugs(self) -> list[str]:
        """Return the fingerprints of what was found, in the order in which it was met."""
        return list(dict.fromkeys(each.state.same_as or each.state.bug for each in self.hunter.findings))

    def exit_code(self, known: Collection[str] = ()) -> int:
        """Return what the hunt comes to; findings weigh more than gaps, less those that are known."""
        hunter = self.hunter
        if any(bug not in known for bug in self.bugs()):
            return EXIT_FOUND
        is_proven = not hunter.settings.canary or (hunter.canary.rounds and not hunter.canary.is_blind)
        gaps = not is_proven or hunter.mismatches or hunter.unjudged
        is_judged = hunter.tally.traces and not gaps and not self.store.contradictions()
        return EXIT_AGREED if is_judged else EXIT_NOT_JUDGED


def seldom_hit(hunter: Hunter) -> list[str]:
    """Return the probes that at most one trace of fifty has hit, and at least one."""
    return [probe for probe in PROBES if 0 < hunter.tally.probes[probe] <= SELDOM_SHARE_MAX * hunter.tally.traces]


def keep_seldom_hit(hunter: Hunter, campaign: Path) -> None:
    """Write the first trace that hit each probe seldom hit, derived again from its key, and expecting to hit it.

    They are what a later hunt may begin from.
    """
    folder, seldom = campaign / SELDOM_FOLDER, seldom_hit(hunter)
    for probe in seldom:
        number, count = hunter.firsts[probe], hunter.tally.probes[probe]
        settings = hunter.settings
        trace = hunter.trace(number).model_copy(update={"schedule": Schedule(), "expect": {probe: 1}})
        what = f"{PROBES[probe]}: in {count} of {hunter.tally.traces} traces"
        head = comment([what, f"first in trace {number} of hunt {settings.profile} {settings.seed}"])
        write_atomically(folder / f"{probe}.yaml", schema_line(folder) + head + codec.dumps(trace))
    for path in folder.glob("*.yaml"):
        if path.stem not in seldom:
            path.unlink()

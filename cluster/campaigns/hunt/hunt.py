"""Hunter: the decisions of a hunt, pure but for the ledger that keeps what must not be lost.

Reports are taken in the order of their shards, whoever is faster: the findings of a hunt, their counts and the trace
each was first met on do not depend on how many workers there are.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cluster.campaigns.hunt.shard_reports import Tally, deadly_hits, joined, no_report
from cluster.campaigns.planner import Task
from cluster.campaigns.triage import KILLED, FindingState, Pursuit
from cluster.dispatch.job import Answer, Role, ShardJob, build
from cluster.storage.corpus import NO_CORPUS, Corpus
from scenarios.shards import GENERATORS, TRACES_PER_SHARD, Generator, Profile, Shard
from scenarios.spec import Value
from scenarios.trace import Trace
from workers.record.verdict import Crashed, Judgement, Lost
from workers.run.shard import Hit, ShardReport, shard_traces
from workers.shrink.fingerprint import signature_of
from workers.targets.registry import kind_of
from workers.targets.target import RunConfig

# It replaces a function of the host, and so exists on every device.
CANARY = "vllm-38556-backup-token"
CANARY_EVERY = 256
CANARY_SHARDS_MAX = 8
AGAIN_EVERY = 16
UNJUDGED_MAX = 3
# A shard that was judged before, or whose fault kills nobody, is not what its workers die of.
LOSSES_MAX_AGAIN = 10


def canary_of(config: RunConfig) -> str:
    """Return the fault that a hunt must find unless it is told otherwise; none in an engine without any."""
    return CANARY if kind_of(config.engine).capabilities.faults else ""


class HuntSettings(Value):
    """What a hunt looks at: its traces and faults, on which engine and device; `canary` is the fault it must find.

    It is empty for an engine in which no fault can be switched on.

    `corpus` is the digest of the traces it begins from, empty for none.
    """

    profile: Profile = "mixed"
    seed: int = 0
    faults: tuple[str, ...] = ()
    canary: str = CANARY
    config: RunConfig = RunConfig()
    corpus: str = ""


class Ledger(Protocol):
    """What is kept of a hunt, so that it can go on later."""

    def shard(self, job: str) -> ShardReport | None:
        """Return the report of a shard."""

    def keep_shard(self, job: ShardJob, attempt: int, report: ShardReport) -> None:
        """Write the report of a shard down."""

    def finding(self, bug: str) -> str | None:
        """Return how far a finding was worked on."""

    def keep_finding(self, bug: str, state: str) -> None:
        """Write down how far a finding has been worked on."""

    def keep_artefact(self, judgement: Judgement, name: str, config: RunConfig) -> str:
        """Write the artefact of a finding and return its path in the campaign."""


@dataclass(slots=True)
class Canary:
    """The search for the planted fault: `number` is its next shard, `rounds` how often it has been found."""

    number: int = 0
    tried: int = 0
    rounds: int = 0
    is_out: bool = False
    is_blind: bool = False
    traces: int = 0
    first: Hit | None = None


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Two runs of a shard that differ: the first trace (its number in the hunt), and both digests."""

    trace: int
    first: str
    again: str


class Hunter:
    """All of a hunt's decisions; `num_traces` bounds it, None is no bound; `slots` is how many jobs run at a time.

    `shares` has what came of the traces of each generator, `firsts` the number of the first trace that hit each probe.
    """

    def __init__(
        self,
        settings: HuntSettings,
        ledger: Ledger,
        running: Path,
        num_traces: int | None,
        slots: int = 1,
        corpus: Corpus = NO_CORPUS,
    ) -> None:
        assert settings.corpus == corpus.digest, f"it is to begin from {settings.corpus}, given is {corpus.digest}"
        self.settings = settings
        self.slots = slots
        self.corpus = corpus
        self.tally = Tally()
        self.shares: dict[Generator, Tally] = {generator: Tally() for generator in GENERATORS}
        self.firsts: dict[str, int] = {}
        self.canary = Canary()
        self.pursuits: dict[str, Pursuit] = {}
        self.mismatches: list[Mismatch] = []
        self.unjudged: dict[int, str] = {}
        self.num_again = self.num_again_elsewhere = 0
        self._ledger = ledger
        self._running = running
        self._num_traces = num_traces
        self._next = self._folded = 0
        self._reports: dict[int, ShardReport] = {}
        self._out: dict[str, ShardJob] = {}
        self._owner: dict[str, Pursuit] = {}
        self._to_repeat: list[Task] = []
        self._repeated: dict[int, tuple[ShardReport, int]] = {}
        self._alone: dict[int, dict[int, ShardReport]] = {}
        self._alone_tasks: list[Task] = []

    @property
    def num_shards(self) -> int | None:
        """Return the number of shards, None if it is not bounded."""
        return None if self._num_traces is None else -(-self._num_traces // TRACES_PER_SHARD)

    @property
    def findings(self) -> list[Pursuit]:
        """Return what was found, in the order in which it was met."""
        return [pursuit for pursuit in self.pursuits.values() if not pursuit.state.is_refuted]

    @property
    def num_open(self) -> int:
        """Return the number of findings that are being shrunk."""
        return sum(pursuit.is_open for pursuit in self.pursuits.values())

    def trace(self, number: int) -> Trace:
        """Return a trace of the hunt by its number."""
        shard, first = divmod(number, TRACES_PER_SHARD)
        (trace,) = shard_traces(self._job("hunt", shard, first=first, traces=1).shard)
        return trace

    def tasks(self, room: int, may_begin: bool) -> list[Task]:
        """Return jobs to run: findings first, then what earlier shards are owed, then new ones if there is room."""
        self._take_known()
        tasks = []
        for pursuit in [each for each in self.pursuits.values() if each.is_open][: self.slots]:
            for task in pursuit.tasks(self.slots):
                self._owner[task.job.key] = pursuit
                tasks.append(task)
        owed, self._alone_tasks, self._to_repeat = self._alone_tasks + self._to_repeat, [], []
        tasks += owed
        if not self.canary.is_out and (canary := self._canary_task()) is not None:
            tasks.append(canary)
        while len(tasks) < room and may_begin and (new := self._new_shard()) is not None:
            tasks.append(new)
        for task in tasks:
            if isinstance(task.job, ShardJob):
                self._out[task.job.key] = task.job
        return tasks

    def is_done(self, may_begin: bool) -> bool:
        """Whether nothing is left to run or to wait for, once `tasks` returned nothing."""
        return not (self._out or self.num_open or (may_begin and self._has_more()))

    def take(self, key: str, result: Answer | Lost, deaths: int, slot: int) -> None:
        """Take the answer to a job that ran on a slot; `deaths` workers died of it before."""
        job = self._out.pop(key, None)
        if job is None:
            pursuit = self._owner.pop(key)
            pursuit.take(key, result, deaths)
            self._ledger.keep_finding(self._name(pursuit.state.bug), pursuit.state.model_dump_json())
        elif isinstance(result, ShardReport):
            self._reported(job, result, slot)
        else:
            assert isinstance(result, Lost), "a shard is answered by a report"
            self._lost(job, result, deaths)
        self._fold()
        self._close()

    def _has_more(self) -> bool:
        bound = self.num_shards
        return (bound is None or self._next < bound) and len(self.unjudged) < UNJUDGED_MAX

    def _take_known(self) -> None:
        """Take the next shards from the ledger, as far as they have reports."""
        while self._has_more():
            job = self._job("hunt", self._next)
            known = self._ledger.shard(job.key)
            if known is None:
                break
            self._next += 1
            self._reported(job, known, None)
            self._fold()
        self._close()

    def _new_shard(self) -> Task | None:
        """Return the job of the next shard without a report, if there is one."""
        if not self._has_more():
            return None
        job, self._next = self._job("hunt", self._next), self._next + 1
        return Task(job)

    def _job(self, role: Role, number: int, **changes: object) -> ShardJob:
        count = TRACES_PER_SHARD
        if self._num_traces is not None and role != "canary":
            count = min(count, self._num_traces - number * TRACES_PER_SHARD)
        faults = (self.settings.canary,) if role == "canary" else self.settings.faults
        profile, seed = self.settings.profile, self.settings.seed
        shard = Shard(profile=profile, seed=seed, number=number, traces=count, faults=faults)
        # A corpus may hold the canary's own trace: generated traces alone must find it.
        if role != "canary":
            changes |= {"corpus": self.corpus.digest, "parents": self.corpus.parents(number)}
        return ShardJob.of(role, shard.model_copy(update=changes), self._running, self.settings.config)

    def _reported(self, job: ShardJob, report: ShardReport, slot: int | None) -> None:
        number = job.shard.number
        match job.role:
            case "canary":
                self._canary_report(report)
            case "again":
                self._compare(number, report, slot)
            case "hunt" if number in self._alone:
                self._alone_report(job.shard, report)
            case "hunt":
                self._reports[number] = report
                self._sample(number, report, slot)

    def _lost(self, job: ShardJob, lost: Lost, deaths: int) -> None:
        """Take the loss of a shard. One that kills its workers is taken apart, to find the trace that does it."""
        shard = job.shard
        match job.role:
            case "canary":
                self._canary_report(None)
            case "again":
                self.unjudged[shard.number] = f"run again: {lost.reason}"
            case "hunt" if not deaths:
                self.unjudged[shard.number] = lost.reason
                self._alone.pop(shard.number, None)
                self._reports[shard.number] = no_report(())
            case "hunt" if shard.traces == 1:
                report = no_report(deadly_hits(shard, lost))
                self._ledger.keep_shard(job, 0, report)
                self._reported(job, report, None)
            case "hunt":
                self._alone[shard.number] = {}
                indexes = range(shard.first, shard.first + shard.traces)
                jobs = [self._job("hunt", shard.number, first=index, traces=1) for index in indexes]
                self._alone_tasks += [Task(each) for each in jobs]

    def _alone_report(self, shard: Shard, report: ShardReport) -> None:
        """Take the report of one trace of a shard that was taken apart."""
        parts = self._alone[shard.number]
        parts[shard.first] = report
        whole = self._job("hunt", shard.number)
        if len(parts) == whole.shard.traces:
            report = self._reports[shard.number] = joined([parts[index] for index in sorted(parts)])
            del self._alone[shard.number]
            self._ledger.keep_shard(whole, 0, report)
            self._sample(shard.number, report, None)

    def _fold(self) -> None:
        while self._folded in self._reports:
            number, report = self._folded, self._reports.pop(self._folded)
            self._folded += 1
            self.tally.add(report)
            self.shares[self._job("hunt", number).shard.generator].add(report)
            for probe, index in report.firsts.items():
                self.firsts.setdefault(probe, number * TRACES_PER_SHARD + index)
            for hit in report.hits:
                bug = hit.signature.bug
                if bug not in self.pursuits:
                    self.pursuits[bug] = self._pursuit(FindingState.of(hit, number * TRACES_PER_SHARD + hit.index))
                self.pursuits[bug].count += hit.count

    def _pursuit(self, state: FindingState) -> Pursuit:
        kept = self._ledger.finding(self._name(state.bug))
        if kept is not None:
            state = FindingState.model_validate_json(kept)
            if state.stage == "closed" and state.is_refuted:
                self._refuted(state)
        return Pursuit(state, config=self.settings.config)

    def _refuted(self, state: FindingState) -> None:
        assert state.judgement is not None, "it was judged again"
        assert isinstance(state.judgement.verdict, Lost), "it failed again"
        self.unjudged[state.first // TRACES_PER_SHARD] = state.judgement.verdict.reason

    def _name(self, bug: str) -> str:
        # Edited code may fail otherwise: what was found with other code is not gone on with.
        return f"{build()} {bug}"

    def _close(self) -> None:
        """Give findings their artefacts in the order in which they were met; one that became another gets none."""
        for pursuit in self.pursuits.values():
            state = pursuit.state
            if state.stage == "closed":
                continue
            if state.stage != "confirmed":
                return
            judgement = state.judgement
            assert judgement is not None, "a confirmed finding was judged"
            if state.is_refuted:
                pursuit.state = state.model_copy(update={"stage": "closed"})
                self._ledger.keep_finding(self._name(state.bug), pursuit.state.model_dump_json())
                self._refuted(pursuit.state)
                continue
            same = self._same_as(state, judgement)
            name = f"trace {state.first} of hunt {self.settings.profile} {self.settings.seed}"
            changes: dict[str, object] = {"stage": "closed", "same_as": same}
            if same is None:
                changes["artefact"] = self._ledger.keep_artefact(judgement, name, self.settings.config)
            pursuit.state = state.model_copy(update=changes)
            self._ledger.keep_finding(self._name(state.bug), pursuit.state.model_dump_json())

    def _same_as(self, state: FindingState, judgement: Judgement) -> str | None:
        """Return the earlier finding that this one came out as when it had been shrunk."""
        signature = signature_of(judgement.verdict, judgement.trace)
        assert signature is not None, "a finding has a signature"
        for bug, pursuit in self.pursuits.items():
            if pursuit.state.is_refuted:
                continue
            other = pursuit.state.judgement
            if bug == state.bug:
                return None
            same = signature_of(other.verdict, other.trace) if other is not None else None
            if signature.bug == bug or (same is not None and same.bug == signature.bug):
                return pursuit.state.same_as or bug
        return None

    def _sample(self, number: int, report: ShardReport, slot: int | None) -> None:
        """Have a shard of the sample judged a second time, on another worker if there is one."""
        kills = any(isinstance(hit.verdict, Crashed) and hit.verdict.where == KILLED for hit in report.hits)
        if kills or number % AGAIN_EVERY:
            return
        job = self._job("again", number)
        self._repeated[number] = report, -1 if slot is None else slot
        known = self._ledger.shard(job.key)
        if known is None:
            self._to_repeat.append(Task(job, LOSSES_MAX_AGAIN, avoid=slot))
        else:
            self._compare(number, known, None)

    def _compare(self, number: int, again: ShardReport, slot: int | None) -> None:
        report, before = self._repeated.pop(number)
        self.num_again += 1
        self.num_again_elsewhere += slot != before
        if again == report:
            return
        pairs = zip(report.digests, again.digests, strict=False)
        index = next((index for index, (one, other) in enumerate(pairs) if one != other), None)
        first, second = ("report", "another report") if index is None else (report.digests[index], again.digests[index])
        self.mismatches.append(Mismatch(number * TRACES_PER_SHARD + (index or 0), first, second))

    def _canary_task(self) -> Task | None:
        """Return the next job of the search for the canary, if one is due."""
        canary = self.canary
        while self.settings.canary and not canary.is_blind and canary.rounds * CANARY_EVERY <= self._folded:
            job = self._job("canary", canary.number)
            known = self._ledger.shard(job.key)
            if known is None:
                canary.is_out = True
                return Task(job, LOSSES_MAX_AGAIN)
            self._canary_report(known)
        return None

    def _canary_report(self, report: ShardReport | None) -> None:
        canary = self.canary
        canary.is_out = False
        canary.number += 1
        canary.tried += 1
        hits = report.hits if report is not None else ()
        if hits:
            if canary.first is None:
                canary.first = hits[0]
                canary.traces = (canary.number - 1) * TRACES_PER_SHARD + hits[0].index + 1
            canary.rounds, canary.tried = canary.rounds + 1, 0
        canary.is_blind = canary.tried >= CANARY_SHARDS_MAX

"""Findings of a hunt: each is triaged, and closed in the order in which they were met, duplicates as such."""

from collections.abc import Iterator

from cluster.campaigns.hunt.jobs import HuntSettings, Ledger
from cluster.campaigns.hunt.news import News, news_of
from cluster.campaigns.planner import Task
from cluster.campaigns.triage import Triage
from cluster.dispatch.coordinator import Record
from cluster.dispatch.job import build
from cluster.storage.hunts import FindingState
from scenarios.shards import TRACES_PER_SHARD
from workers.record.verdict import Judgement, Lost, is_finding
from workers.run.shard import Hit
from workers.shrink.fingerprint import signature_of


class Findings:
    """Findings by fingerprint, in the order in which they were met; iterating leaves out those that were refuted.

    Those that share a cause count as one. Two share it where they came out as the same when they were shrunk, or where
    the smallest traces of both need the same planted fault, and no other.
    """

    def __init__(self, settings: HuntSettings, ledger: Ledger) -> None:
        self.by_bug: dict[str, Triage] = {}
        self._settings = settings
        self._ledger = ledger
        self._owner: dict[str, Triage] = {}
        self._news: list[News] = []

    def distinct(self) -> list[Triage]:
        """Return the findings that are of a cause of their own."""
        return [triage for triage in self if triage.state.is_distinct]

    def __iter__(self) -> Iterator[Triage]:
        return (triage for triage in self.by_bug.values() if not triage.state.is_refuted)

    def __len__(self) -> int:
        return sum(triage.state.is_distinct for triage in self)

    def faces(self, triage: Triage) -> list[Triage]:
        """Return what else a finding was met as."""
        bug = triage.state.bug
        alike = {bug, *(each.state.bug for each in self if each.state.face_of == bug)}
        return [each for each in self if each.state.face_of == bug or each.state.same_as in alike]

    @property
    def num_open(self) -> int:
        """Return the number of findings that are being shrunk."""
        return sum(triage.is_open for triage in self.by_bug.values())

    @property
    def refuted(self) -> dict[int, str]:
        """Return why closed findings turned out to be none, by the shards that they leave unjudged."""
        reasons: dict[int, str] = {}
        for triage in self.by_bug.values():
            state = triage.state
            if state.stage == "closed" and state.judgement is not None and isinstance(state.judgement.verdict, Lost):
                reasons[state.first // TRACES_PER_SHARD] = state.judgement.verdict.reason
        return reasons

    def add(self, hit: Hit, first: int) -> None:
        """Count a hit whose first trace has a number; one of a new fingerprint is a new finding."""
        bug = hit.signature.bug
        if bug not in self.by_bug:
            kept = self._ledger.finding(_name(bug))
            state = FindingState.of(hit, first) if kept is None else FindingState.model_validate_json(kept)
            self.by_bug[bug] = Triage(state, config=self._settings.config)
            if state.artefact is not None and state.judgement is not None:
                self._ledger.restore_artefact(state.judgement, self._trace_name(state), self._settings.config)
            if kept is None:
                # Whoever reads the campaign shall know of it, should nobody ever have the time to look into it.
                self._keep(state)
        self.by_bug[bug].count += hit.count

    def tasks(self, slots: int) -> list[Task]:
        """Return the jobs that the first open findings ask for, on about this many slots."""
        tasks = []
        for triage in [each for each in self.by_bug.values() if each.is_open][:slots]:
            for task in triage.tasks(slots):
                self._owner[task.job.key] = triage
                tasks.append(task)
        return tasks

    def take(self, record: Record) -> None:
        """Take the result of a job that a finding asked for."""
        triage = self._owner.pop(record.job)
        before = triage.state
        triage.take(record)
        self._news += news_of(before, triage.state)
        self._keep(triage.state)

    def take_news(self) -> list[News]:
        """Return what was confirmed or dropped since the last call."""
        news, self._news = self._news, []
        return news

    def keep_open(self) -> None:
        """Write the smallest trace so far of each open finding as its artefact; a hunt that goes on shrinks it."""
        for triage in self.by_bug.values():
            state, small = triage.state, triage.state.smallest
            if not triage.is_open or small is None or not is_finding(small.verdict):
                continue
            artefact = self._ledger.keep_artefact(small, self._trace_name(state), self._settings.config)
            triage.state = state.model_copy(update={"artefact": artefact})
            self._keep(triage.state)

    def close(self) -> None:
        """Close the confirmed findings that no open one was met before."""
        for triage in self.by_bug.values():
            if triage.state.stage == "closed":
                continue
            if triage.state.stage != "confirmed":
                return
            triage.state = self._closed(triage.state)
            self._keep(triage.state)

    def _closed(self, state: FindingState) -> FindingState:
        """Return a confirmed finding as closed, with an artefact unless it was refuted or became another finding."""
        judgement = state.judgement
        assert judgement is not None, "a confirmed finding was judged"
        changes: dict[str, object] = {"stage": "closed"}
        if not state.is_refuted:
            changes["same_as"] = same = self._same_as(state, judgement)
            if same is None:
                changes["face_of"] = self._face_of(state)
                name = self._trace_name(state)
                changes["artefact"] = self._ledger.keep_artefact(judgement, name, self._settings.config)
        return state.model_copy(update=changes)

    def _trace_name(self, state: FindingState) -> str:
        return f"trace {state.first} of hunt {self._settings.profile} {self._settings.seed}"

    def _same_as(self, state: FindingState, judgement: Judgement) -> str | None:
        """Return the earlier finding that this one came out as when it had been shrunk."""
        signature = signature_of(judgement.verdict, judgement.trace)
        assert signature is not None, "a finding has a signature"
        for bug, triage in self.by_bug.items():
            if triage.state.is_refuted:
                continue
            if bug == state.bug:
                return None
            other = triage.state.judgement
            same = signature_of(other.verdict, other.trace) if other is not None else None
            if signature.bug == bug or (same is not None and same.bug == signature.bug):
                return triage.state.same_as or bug
        return None

    def _face_of(self, state: FindingState) -> str | None:
        """Return the first of the earlier findings that has the same cause."""
        if state.cause is None:
            return None
        for bug, triage in self.by_bug.items():
            if bug == state.bug:
                return None
            if triage.state.is_distinct and triage.state.cause == state.cause:
                return bug
        return None

    def _keep(self, state: FindingState) -> None:
        self._ledger.keep_finding(_name(state.bug), state.model_dump_json())


def _name(bug: str) -> str:
    # Edited code may fail otherwise: what was found with other code is not gone on with.
    return f"{build()} {bug}"

"""Findings of a hunt by fingerprint; each is rerun, shrunk and confirmed.

They are closed in the order of discovery, and duplicates are marked.
"""

from collections.abc import Iterator

from cluster.campaigns.hunt.jobs import HuntSettings, Ledger
from cluster.campaigns.hunt.news import News, news_of
from cluster.campaigns.planner import Task
from cluster.campaigns.triage import Triage
from cluster.dispatch.coordinator import Record
from cluster.dispatch.job import build
from cluster.storage.hunts import FindingState
from scenarios.generation.shards import TRACES_PER_SHARD
from workers.record.verdict import Judgement, Lost, is_finding
from workers.run.shard import Hit
from workers.shrink.fingerprint import signature_of


class Findings:
    """Findings by fingerprint, in order of discovery; iteration skips refuted ones.

    Findings with the same cause count as one. The cause is the same if their shrunk traces have the same fingerprint,
    or if the smallest traces of both need the same single planted fault.
    """

    def __init__(self, settings: HuntSettings, ledger: Ledger) -> None:
        self.by_bug: dict[str, Triage] = {}
        self._settings = settings
        self._ledger = ledger
        self._owner: dict[str, Triage] = {}
        self._news: list[News] = []

    def distinct(self) -> list[Triage]:
        """Return the findings that are no duplicates of earlier ones."""
        return [triage for triage in self if triage.state.is_distinct]

    def __iter__(self) -> Iterator[Triage]:
        return (triage for triage in self.by_bug.values() if not triage.state.is_refuted)

    def __len__(self) -> int:
        return sum(triage.state.is_distinct for triage in self)

    def duplicates_of(self, triage: Triage) -> list[Triage]:
        """Return the duplicates of a finding, in order of discovery."""
        bug = triage.state.bug
        alike = {bug, *(each.state.bug for each in self if each.state.face_of == bug)}
        return [each for each in self if each.state.face_of == bug or each.state.same_as in alike]

    @property
    def num_open(self) -> int:
        """Return the number of findings that are still being shrunk."""
        return sum(triage.is_open for triage in self.by_bug.values())

    @property
    def refuted(self) -> dict[int, str]:
        """Return why findings were dropped, by the number of the shard that met them."""
        reasons: dict[int, str] = {}
        for triage in self.by_bug.values():
            state = triage.state
            if state.stage == "closed" and state.judgement is not None and isinstance(state.judgement.verdict, Lost):
                reasons[state.first // TRACES_PER_SHARD] = state.judgement.verdict.reason
        return reasons

    def add(self, hit: Hit, first: int) -> None:
        """Count the traces of a shard's hit; a new fingerprint makes a new finding."""
        bug = hit.signature.bug
        if bug not in self.by_bug:
            kept = self._ledger.finding(_name(bug))
            state = FindingState.of(hit, first) if kept is None else FindingState.model_validate_json(kept)
            self.by_bug[bug] = Triage(state, config=self._settings.config)
            if state.artefact is not None and state.judgement is not None:
                self._ledger.restore_artefact(state.judgement, self._trace_name(state), self._settings.config)
            if kept is None:
                # The finding is stored at once: a campaign that ends before its triage still reports it.
                self._keep(state)
        self.by_bug[bug].count += hit.count

    def tasks(self, slots: int) -> list[Task]:
        """Return jobs that rerun or shrink the oldest open findings, for about `slots` workers."""
        tasks = []
        for triage in [each for each in self.by_bug.values() if each.is_open][:slots]:
            for task in triage.tasks(slots):
                self._owner[task.job.key] = triage
                tasks.append(task)
        return tasks

    def take(self, record: Record) -> None:
        """Process a job's result: advance the triage of its finding."""
        triage = self._owner.pop(record.job)
        before = triage.state
        triage.take(record)
        self._news += news_of(before, triage.state)
        self._keep(triage.state)

    def take_news(self) -> list[News]:
        """Return the findings that were confirmed or dropped since the last call."""
        news, self._news = self._news, []
        return news

    def keep_open(self) -> None:
        """Write the smallest trace so far of each open finding as an artefact.

        A resumed hunt continues to shrink it.
        """
        for triage in self.by_bug.values():
            state, small = triage.state, triage.state.smallest
            if not triage.is_open or small is None or not is_finding(small.verdict):
                continue
            artefact = self._ledger.keep_artefact(small, self._trace_name(state), self._settings.config)
            triage.state = state.model_copy(update={"artefact": artefact})
            self._keep(triage.state)

    def close(self) -> None:
        """Close confirmed findings in order of discovery, up to the first open one."""
        for triage in self.by_bug.values():
            if triage.state.stage == "closed":
                continue
            if triage.state.stage != "confirmed":
                return
            triage.state = self._with_stage_closed(triage.state)
            self._keep(triage.state)

    def _with_stage_closed(self, state: FindingState) -> FindingState:
        """Return a confirmed finding's state with stage `closed`.

        It gets an artefact unless it is refuted or a duplicate.
        """
        judgement = state.judgement
        assert judgement is not None, "a confirmed finding was judged"
        changes: dict[str, object] = {"stage": "closed"}
        if not state.is_refuted:
            changes["same_as"] = same = self._same_as(state, judgement)
            if same is None:
                changes["face_of"] = self._duplicate_of(state)
                name = self._trace_name(state)
                changes["artefact"] = self._ledger.keep_artefact(judgement, name, self._settings.config)
        return state.model_copy(update=changes)

    def _trace_name(self, state: FindingState) -> str:
        return f"trace {state.first} of hunt {self._settings.profile} {self._settings.seed}"

    def _same_as(self, state: FindingState, judgement: Judgement) -> str | None:
        """Return the earlier finding with the same fingerprint after shrinking, or None."""
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

    def _duplicate_of(self, state: FindingState) -> str | None:
        """Return the first earlier finding that needs the same planted fault, or None."""
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
    # The key has the build: edited code may fail in another way, so findings of other code are not continued.
    return f"{build()} {bug}"

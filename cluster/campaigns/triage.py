"""Triage of a finding: judge its trace again, shrink it, confirm the small trace.

A pure state machine: it proposes jobs and handles their results; `FindingState` is its complete stored state.
"""

from dataclasses import dataclass

from cluster.campaigns.planner import Counts, Task
from cluster.dispatch.coordinator import Record
from cluster.dispatch.job import AnyJob, Job, TryJob, build, digest_of
from cluster.storage.hunts import KILLED, FindingState
from scenarios.trace import Trace
from workers.record.verdict import (
    NO_STATS,
    Agreed,
    Crashed,
    Judgement,
    Lost,
    Vacuous,
    Verdict,
    is_finding,
    known_causes,
    unconfirmed_reason,
)
from workers.shrink.shrinker import LIMIT, Finding, Shrinking, TriedCandidates
from workers.targets.target import DEFAULT_CONFIG, RunConfig

CANDIDATES_PER_JOB = 8
NOT_FOUND_AGAIN = Lost(reason="the finding is not reproduced when its trace is judged alone")


def worker_loss_verdict(deaths: tuple[str, ...]) -> Crashed:
    """Return the verdict for a trace that kills every worker that runs it."""
    return Crashed(stats=NO_STATS, error="; ".join(dict.fromkeys(deaths)), where=KILLED)


@dataclass(slots=True)
class _Part:
    """Candidates (smaller traces) that run as one job, and the job's answer once it arrives."""

    candidates: tuple[Trace, ...]
    answer: TriedCandidates | None = None


class Triage:
    """State machine of one finding: rerun it, shrink it, confirm it.

    `count` traces of the hunt have it.

    It is also a planner by itself, without a store.
    """

    def __init__(self, state: FindingState, limit: int = LIMIT, config: RunConfig = DEFAULT_CONFIG) -> None:
        self.count = 0
        self.state = state
        self._limit = limit
        self._config = config
        self._parts: dict[str, _Part] = {}
        self._waiting: set[str] = set()
        self._again: list[Task] = []
        if state.stage == "explain" and state.kills and state.verdict is not None:
            self._begin(state.trace, state.verdict)

    @property
    def is_open(self) -> bool:
        """Whether the finding is not confirmed yet."""
        return self.state.stage in ("explain", "shrink", "confirm")

    def tasks(self, slots: int, room: int = 0) -> list[Task]:
        """Return the next jobs for about this number of slots; none while jobs run."""
        again, self._again = self._again, []
        if again or self._waiting:
            return again
        state = self.state
        if state.stage == "shrink":
            return self._round(slots)
        if state.stage == "explain":
            return [self._judge(state.trace)]
        if state.stage == "confirm":
            assert state.shrinking is not None, "what is confirmed was shrunk"
            return [self._judge(state.shrinking.trace)]
        return []

    def take(self, record: Record) -> None:
        """Process a job's result: a judgement, or an answer on candidates.

        Results and losses of jobs that are no longer needed are ignored.
        """
        if record.job not in self._waiting:
            return
        self._waiting.discard(record.job)
        match record.result:
            case TriedCandidates() as tried:
                self._parts[record.job].answer = tried
                self._settle()
            case Lost() if record.job in self._parts:
                self._lost_part(record.job, record.deaths)
            case Judgement() | Lost() as result if self.state.stage == "explain":
                self._explained(result, record.deaths)
            case Judgement() | Lost() as result:
                self._confirmed(result, record.deaths)

    def _key(self, *parts: object) -> str:
        return digest_of(build(), self._config.text, self.state.bug, self.state.stage, *parts)

    def _judge(self, trace: Trace) -> Task:
        job = Job(key=self._key(), trace=trace, sweep=False, config=self._config)
        self._waiting = {job.key}
        return Task(job, losses_max=2)

    def _round(self, slots: int) -> list[Task]:
        shrinking = self.state.shrinking
        assert shrinking is not None, "it has begun"
        size = 1 if self.state.kills else CANDIDATES_PER_JOB
        proposed = shrinking.proposals(slots * size)
        self._parts = {}
        parts = [tuple(proposed[start : start + size]) for start in range(0, len(proposed), size)]
        return [self._part(part, shrinking.spent, index) for index, part in enumerate(parts)]

    def _part(self, candidates: tuple[Trace, ...], *label: object) -> Task:
        shrinking = self.state.shrinking
        assert shrinking is not None, "it has begun"
        job = TryJob(key=self._key(*label), candidates=candidates, target=shrinking.wanted, config=self._config)
        self._parts[job.key] = _Part(candidates)
        self._waiting.add(job.key)
        return Task(job, losses_max=1 if self.state.kills else 2)

    def _lost_part(self, key: str, deaths: tuple[str, ...]) -> None:
        """Handle a lost job of candidates: run each candidate in a job of its own.

        One that kills its worker crashed.
        """
        part = self._parts[key]
        if deaths and len(part.candidates) > 1:
            before = self._parts
            self._parts = {}
            for other, kept in before.items():
                if other != key:
                    self._parts[other] = kept
                    continue
                self._again = [self._part((each,), key, index) for index, each in enumerate(part.candidates)]
            return
        found = worker_loss_verdict(deaths) if self.state.kills and deaths else None
        part.answer = TriedCandidates(count=len(part.candidates), found=found)
        self._settle()

    def _settle(self) -> None:
        """Continue shrinking when the first candidate with the same failure is known.

        Later ones are ignored.
        """
        shrinking, count = self.state.shrinking, 0
        assert shrinking is not None, "it has begun"
        for part in self._parts.values():
            if part.answer is None:
                return
            count += part.answer.count
            if part.answer.found is not None:
                break
        found = part.answer.found if part.answer is not None else None
        after = shrinking.after(TriedCandidates(count=count, found=found))
        self._parts, self._waiting, self._again = {}, set(), []
        self._update(shrinking=after, stage="shrink" if after.proposals(1) else "confirm")

    def _begin(self, trace: Trace, verdict: Finding) -> None:
        self._update(stage="shrink", shrinking=Shrinking.of(trace, verdict, self._limit))

    def _explained(self, result: Judgement | Lost, deaths: tuple[str, ...]) -> None:
        state = self.state
        verdict = result if isinstance(result, Lost) else result.verdict
        if isinstance(result, Judgement) and state.bug and known_causes(verdict):
            # The hunt has found a bug with a known smallest trace.
            self._update(stage="confirmed", judgement=result)
        elif isinstance(result, Judgement) and not isinstance(verdict, Agreed | Vacuous | Lost):
            why = unconfirmed_reason(verdict)
            met = state.verdict.model_copy(update={"unconfirmed": why}) if state.verdict is not None else verdict
            self._update(verdict=met)
            self._begin(result.trace, verdict)
        elif state.is_unconfirmed and not deaths:
            lost = result if isinstance(result, Lost) else NOT_FOUND_AGAIN
            self._confirmed_as(lost, state.trace)
        elif state.verdict is not None:
            # It fails only under its original schedule, or kills the workers that judge it again: the first verdict
            # stays.
            self._confirmed_as(state.verdict, state.trace)
        elif isinstance(result, Lost) and deaths:
            self._update(verdict=worker_loss_verdict(deaths))
            self._begin(state.trace, worker_loss_verdict(deaths))
        else:
            self._confirmed_as(verdict, state.trace)

    def _confirmed(self, result: Judgement | Lost, deaths: tuple[str, ...]) -> None:
        shrinking, met = self.state.shrinking, self.state.verdict
        assert shrinking is not None, "what is confirmed was shrunk"
        assert met is not None, "what was shrunk failed"
        if isinstance(result, Judgement) and is_finding(result.verdict):
            self._update(stage="confirmed", judgement=result)
        elif isinstance(result, Lost) is self.state.kills:
            self._confirmed_as(shrinking.verdict, shrinking.trace)
        elif isinstance(result, Lost) and not deaths and unconfirmed_reason(met) is not None:
            # The long trace was never confirmed, and the small one was not confirmed either.
            self._confirmed_as(result, self.state.trace)
        elif self.state.kills:
            # Workers that were killed from outside die with any trace.
            self._confirmed_as(Lost(reason="its workers died, and did not when it was run again"), self.state.trace)
        else:
            self._confirmed_as(met, self.state.trace)

    def _confirmed_as(self, verdict: Verdict, trace: Trace) -> None:
        self._update(stage="confirmed", judgement=Judgement(verdict=verdict, trace=trace, schedules=1))

    def _update(self, **changes: object) -> None:
        self.state = self.state.model_copy(update=changes)

    def begin(self, job: AnyJob, attempt: int, slot: int) -> None:
        """Do nothing: attempts of candidates are not stored, as lost ones are proposed again."""

    def is_done(self) -> bool:
        return not self.is_open

    def counts(self) -> Counts:
        shrinking = self.state.shrinking
        return Counts(0, None, 0) if shrinking is None else Counts(shrinking.spent, shrinking.limit, 1, 1)

"""Suite: scenarios, each judged once, with their results in a store."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cluster.campaigns.exit_codes import EXIT_AGREED, EXIT_NOT_JUDGED, exit_code
from cluster.campaigns.planner import Counts, Task
from cluster.dispatch.coordinator import Record
from cluster.dispatch.job import AnyJob, Job
from cluster.storage.campaign import Result
from cluster.storage.provenance import PlannedWork
from cluster.storage.store import Store
from scenarios.trace import Trace
from workers.record.verdict import Judgement, Lost, Verdict, is_finding


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario's name and job; scenarios with equal traces share a job."""

    name: str
    job: Job


def planned_jobs(scenarios: Sequence[Scenario]) -> dict[str, tuple[str, ...]]:
    """Return the job keys by scenario name."""
    keys: dict[str, list[str]] = {}
    for scenario in scenarios:
        keys.setdefault(scenario.name, []).append(scenario.job.key)
    return {name: tuple(each) for name, each in keys.items()}


class Suite:
    """Planner of scenarios; a stored result is not judged again."""

    def __init__(self, scenarios: Sequence[Scenario], store: Store) -> None:
        self.scenarios = scenarios
        self._store = store
        self._by_key: dict[str, Scenario] = {}
        for scenario in scenarios:
            self._by_key.setdefault(scenario.job.key, scenario)
        self.results: dict[str, Result] = {}
        for scenario in self._by_key.values():
            result = store.result(scenario.job.key)
            if result is not None:
                self.results[scenario.job.key] = _with_shared_trace(result, scenario.job.trace)
        self.kept = len(self.results)
        store.plan(PlannedWork(scenarios=planned_jobs(scenarios)))
        for key, result in self.results.items():
            if result.artefact is not None:
                store.restore_artefact(result.judgement, result.scenario, self._by_key[key].job.config)
        self._is_asked = False
        self._num_findings = sum(is_finding(result.judgement.verdict) for result in self.results.values())

    @property
    def missing(self) -> list[Job]:
        """Return the jobs without a result, in the order of the scenarios."""
        return [scenario.job for key, scenario in self._by_key.items() if key not in self.results]

    def verdicts(self) -> list[Verdict | None]:
        """Return the verdict of each scenario, None without a result."""
        results = (self.results.get(scenario.job.key) for scenario in self.scenarios)
        return [None if result is None else result.judgement.verdict for result in results]

    def ran(self) -> frozenset[str]:
        """Return the edited functions of the engine's sources that a scenario executed."""
        return frozenset(name for result in self.results.values() for name in result.judgement.ran)

    def exit_code(self) -> int:
        """Return the scenarios' exit code; contradictory answers count as not judged."""
        code = exit_code(self.verdicts())
        return EXIT_NOT_JUDGED if code == EXIT_AGREED and self._store.contradictions() else code

    def tasks(self, slots: int, room: int) -> list[Task]:
        jobs = [] if self._is_asked else self.missing
        self._is_asked = True
        return [Task(job) for job in jobs]

    def begin(self, job: AnyJob, attempt: int, slot: int) -> None:
        scenario = self._by_key[job.key]
        self._store.begin(scenario.job, attempt, slot, scenario.name)

    def take(self, record: Record) -> None:
        scenario, judgement = self._by_key[record.job], record.result
        if isinstance(judgement, Lost):
            judgement = Judgement(verdict=judgement, trace=scenario.job.trace, schedules=0)
        assert isinstance(judgement, Judgement), "a job of a trace is answered by a judgement"
        # The result is available for the report even if the disk is full.
        self.results[record.job] = Result(record.job, judgement, None)
        self._num_findings += is_finding(judgement.verdict)
        self.results[record.job] = self._store.record(scenario.job, record.attempt, judgement, scenario.name)

    def is_done(self) -> bool:
        return len(self.results) == len(self._by_key)

    def counts(self) -> Counts:
        return Counts(len(self.results), len(self._by_key), self._num_findings)


def _with_shared_trace(result: Result, trace: Trace) -> Result:
    """Return a result whose trace is the scenario's object, if both are equal.

    This saves three quarters of the memory.
    """
    if result.judgement.trace != trace:
        return result
    return replace(result, judgement=result.judgement.model_copy(update={"trace": trace}))

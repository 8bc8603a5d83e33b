"""Store: a campaign directory survives kills, resumes, and has one result per job."""

import sqlite3
from pathlib import Path

import pytest

from cluster.campaigns.driver import drive
from cluster.campaigns.exit_codes import exit_code
from cluster.campaigns.suite import Scenario, Suite
from cluster.dispatch.coordinator import Event
from cluster.dispatch.job import Job, job_key
from cluster.dispatch.pool import InProcessPool
from cluster.dispatch.session import Stop
from cluster.storage.errors import CampaignError
from cluster.storage.lock import claim_next
from cluster.storage.store import Store
from scenarios import codec
from tests.cluster.fake_judge import FAKE_JUDGE, FakeJudge, trace
from workers.record.verdict import Agreed, Judgement, Lost


def scenario(request: str) -> Scenario:
    """Return a scenario with this name of the first request."""
    return Scenario(f"{request}.yaml", Job.of(trace(request), sweep=True))


def run(folder: Path, *requests: str) -> Suite:
    """Run scenarios in this process."""
    with Store(folder) as store:
        suite = Suite([scenario(request) for request in requests], store)
        drive(suite, InProcessPool(FAKE_JUDGE), Stop(), None, store)
        return suite


def rows(folder: Path, query: str) -> list[tuple[object, ...]]:
    """Return the rows of a query on a closed campaign."""
    database = sqlite3.connect(folder / "campaign.sqlite")
    try:
        return database.execute(query).fetchall()
    finally:
        database.close()


def test_a_campaign_records_each_job_once_and_cleans_up(tmp_path: Path) -> None:
    suite = run(tmp_path, "agree", "diverge", "agree-2", "crash", "stuck", "vacuous")
    kinds = ["agreed", "diverged", "agreed", "crashed", "stuck", "vacuous"]
    assert [verdict and verdict.kind for verdict in suite.verdicts()] == kinds
    assert rows(tmp_path, "SELECT COUNT(*) FROM results") == [(6,)]
    assert rows(tmp_path, "SELECT DISTINCT attempt FROM attempts") == [(1,)]
    assert list((tmp_path / "running").iterdir()) == []
    names = sorted(path.name.partition("-")[0] for path in (tmp_path / "artefacts").iterdir())
    assert names == ["crash", "liveness", "recurrent"]


def test_two_scenarios_with_the_same_trace_share_a_job(tmp_path: Path) -> None:
    suite = run(tmp_path, "agree", "agree")
    assert [type(verdict) for verdict in suite.verdicts()] == [Agreed, Agreed]
    assert rows(tmp_path, "SELECT COUNT(*) FROM attempts") == [(1,)]


def test_a_second_run_keeps_results_and_runs_only_what_is_new(tmp_path: Path) -> None:
    first = run(tmp_path, "agree", "diverge")
    second = run(tmp_path, "agree", "diverge", "agree-3")
    assert second.kept == 2
    assert second.verdicts()[:2] == first.verdicts()
    assert rows(tmp_path, "SELECT COUNT(*), MAX(attempt) FROM attempts") == [(3, 1)]


def test_an_attempt_that_was_cut_short_is_abandoned_and_made_again(tmp_path: Path) -> None:
    job = scenario("agree").job
    with Store(tmp_path) as store:
        store.begin(job, 1, 0, "agree.yaml")
        running = store.running_file(job.key)
    assert codec.load(running) == job.trace
    run(tmp_path, "agree")
    attempts = rows(tmp_path, "SELECT attempt, outcome FROM attempts ORDER BY attempt")
    assert attempts == [(1, "abandoned"), (2, "agreed")]
    assert not running.exists()


def test_a_lost_job_keeps_its_trace_and_is_tried_again_by_the_next_run(tmp_path: Path) -> None:
    job = scenario("agree").job
    with Store(tmp_path) as store:
        store.begin(job, 1, 0, "agree.yaml")
        lost = Judgement(verdict=Lost(reason="3 attempts were lost"), trace=job.trace, schedules=0)
        store.record(job, 1, lost, "agree.yaml")
        assert store.running_file(job.key).exists()
    assert [type(verdict) for verdict in run(tmp_path, "agree").verdicts()] == [Agreed]
    assert rows(tmp_path, "SELECT verdict, attempt FROM results") == [("agreed", 2)]


def test_the_first_result_of_a_job_stays(tmp_path: Path) -> None:
    job = scenario("agree").job
    with Store(tmp_path) as store:
        first = store.record(job, 1, FakeJudge().judge(job.trace, True), "agree.yaml")
        second = store.record(job, 2, FakeJudge().judge(trace("diverge"), True), "agree.yaml")
    assert first == second


def test_a_late_result_that_differs_is_a_contradiction_and_an_equal_one_is_not(tmp_path: Path) -> None:
    equal, different = scenario("agree").job, scenario("agree-2").job
    with Store(tmp_path) as store:
        for job in (equal, different):
            store.record(job, 2, FakeJudge().judge(job.trace, True), "a.yaml")
        # What ran in a worker's engine before depends on the worker's earlier jobs.
        late = FakeJudge().judge(equal.trace, True).model_copy(update={"ran": ("a.py:run",)})
        store.note_late(equal.key, 1, late)
        store.note_late(different.key, 1, FakeJudge().judge(trace("diverge"), True))
        assert store.contradictions() == [different.key]


def test_two_processes_cannot_write_one_campaign(tmp_path: Path) -> None:
    with Store(tmp_path), pytest.raises(CampaignError, match="another process is writing"):
        Store(tmp_path)
    Store(tmp_path).close()


def test_a_file_that_is_no_campaign_is_refused(tmp_path: Path) -> None:
    (tmp_path / "campaign.sqlite").write_text("not a database, and long enough to be read as one" * 30)
    with pytest.raises(CampaignError, match="is not a campaign database"):
        Store(tmp_path)


def test_a_job_key_depends_on_trace_thoroughness_and_code() -> None:
    keys = {
        job_key(each, sweep, code)
        for each in (trace("agree"), trace("agree", seed=1))
        for sweep in (False, True)
        for code in ("0.1.0+aa", "0.1.0+ab")
    }
    assert len(keys) == 8
    assert job_key(trace("agree"), True, "x") == job_key(trace("agree"), True, "x")


def test_new_campaign_folders_do_not_collide(tmp_path: Path) -> None:
    claims = [claim_next(tmp_path / "campaigns", stem) for stem in ("smoke", "smoke", "smoke", "stress")]
    assert [each.folder.name for each in claims] == ["smoke-0001", "smoke-0002", "smoke-0003", "stress-0001"]
    for each in claims:
        each.release()


def test_unjudged_scenario_never_hides_a_finding() -> None:
    verdicts = {
        request: FakeJudge().judge(trace(request), True).verdict
        for request in ("agree", "diverge", "crash", "stuck", "vacuous")
    }
    assert exit_code([]) == 0
    assert exit_code([verdicts["agree"]]) == 0
    assert exit_code([verdicts["agree"], verdicts["vacuous"]]) == 3
    assert exit_code([verdicts["agree"], Lost(reason="x")]) == 3
    assert exit_code([verdicts["agree"], None]) == 3
    for finding in ("diverge", "crash", "stuck"):
        assert exit_code([None, verdicts["vacuous"], Lost(reason="x"), verdicts[finding]]) == 1


def test_a_campaign_with_more_than_one_ambiguous_decision_in_a_thousand_was_not_judged() -> None:
    agreed = FakeJudge().judge(trace("agree"), True).verdict
    assert isinstance(agreed, Agreed)

    def drawn(**probes: int) -> Agreed:
        return agreed.model_copy(update={"stats": agreed.stats.model_copy(update={"probes": probes})})

    assert exit_code([drawn(random_decision=999, ambiguous_decision=1)]) == 3
    assert exit_code([drawn(random_decision=999, ambiguous_decision=1), drawn(random_decision=1)]) == 0


def test_a_worker_that_raises_loses_only_its_own_job(tmp_path: Path) -> None:
    suite = run(tmp_path, "raise", "agree")
    reason = "the worker raised ValueError: the worker is broken"
    assert suite.verdicts()[0] == Lost(reason=reason)
    assert isinstance(suite.verdicts()[1], Agreed)
    assert exit_code(suite.verdicts()) == 3


class Stopping(InProcessPool):
    """Pool that requests a stop during its second job."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(FAKE_JUDGE)
        self._stop = stop
        self._waits = 0

    def wait(self, seconds: float) -> list[Event]:
        """Return the pool's events; request the stop after the first job."""
        self._waits += 1
        if self._waits == 3:
            self._stop.signum = 15
        return super().wait(seconds)


def test_a_stop_keeps_what_is_recorded_and_a_resume_does_the_rest(tmp_path: Path) -> None:
    scenarios = [scenario(f"agree-{index}") for index in range(5)]
    stop = Stop()
    with Store(tmp_path) as store:
        suite = Suite(scenarios, store)
        drive(suite, Stopping(stop), stop, None, store)
        assert len(suite.results) == 2
        assert suite.exit_code() == 3
    with Store(tmp_path) as store:
        suite = Suite(scenarios, store)
        drive(suite, InProcessPool(FAKE_JUDGE), Stop(), None, store)
        assert suite.kept == 2
        assert suite.exit_code() == 0

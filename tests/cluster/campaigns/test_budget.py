"""Time budget of a campaign and of its parts."""

from pathlib import Path

import pytest

from cluster.campaigns.budget import Budget, duration_text
from cluster.campaigns.driver import drive
from cluster.campaigns.nightly import HUNT_END, NIGHT_END, REPLAY_END, TRACES_END, division
from cluster.campaigns.suite import Scenario, Suite
from cluster.dispatch.job import Job
from cluster.dispatch.pool import InProcessPool
from cluster.dispatch.session import Stop
from cluster.storage.store import Store
from tests.cluster.fake_judge import trace


def test_a_share_of_a_budget_ends_when_it_is_used_up() -> None:
    now = [100.0]
    budget = Budget(10, lambda: now[0])
    assert (budget.left(), budget.left(0.4)) == (10, 4)
    now[0] = 104.0
    assert not budget.has_time(0.4)
    assert budget.has_time()
    now[0] = 111.0
    assert not budget.has_time()
    assert Budget(None, lambda: now[0]).has_time(0.0)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.5, "0.5 s"), (119, "119 s"), (720, "12 min"), (7200, "2 h"), (27000, "7.5 h")]
)
def test_duration_is_printed_in_a_fitting_unit(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_night_prints_its_division_of_time() -> None:
    assert 0 < REPLAY_END < TRACES_END < HUNT_END < NIGHT_END == 1
    told = division(8, 13)
    assert told.startswith(
        "nightly: 8 h in all: regressions until 3.2 h at most, then the hunt (last trace begun at 5.6 h"
    )
    assert "13 faults measured" in told
    assert "no bound" in division(0, 13)


def test_a_campaign_without_time_ends_and_keeps_what_it_has(tmp_path: Path) -> None:
    scenarios = [Scenario(str(n), Job.of(trace(f"r{n}"), sweep=False)) for n in range(4)]
    with Store(tmp_path) as store:
        suite = Suite(scenarios, store)
        judge = "tests.cluster.fake_judge:FakeJudge"
        drive(suite, InProcessPool(judge), Stop(), None, store, lambda: len(suite.results) < 2)
        assert len(suite.results) == 2
        drive(Suite(scenarios, store), InProcessPool(judge), Stop(), None, store)
        assert len(Suite(scenarios, store).results) == 4

"""Command `watch`: progress and findings of a campaign in another process."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from benchmarks.robustness.store_damage import run, scenarios_of
from cluster.campaigns.driver import drive
from cluster.campaigns.planner import Counts
from cluster.campaigns.suite import Suite
from cluster.cli import main as cli
from cluster.dispatch.origin import ROOT
from cluster.dispatch.pool import InProcessPool
from cluster.dispatch.session import Stop
from cluster.storage.campaign import Campaign
from cluster.storage.pace import RemainingTime
from cluster.storage.progress import FILE, ProgressFile, Snapshot, read_progress
from cluster.storage.store import Store

JUDGE = "benchmarks.robustness.store_damage:InstantJudge"
NUM_SCENARIOS = 9


class Watched:
    """Progress display that runs `watch` on its own campaign, once, after four results."""

    def __init__(self, folder: Path) -> None:
        self.out = ""
        self._folder = folder

    def update(self, counts: Counts) -> None:
        """Run `watch` if four results have arrived."""
        if counts.done == 4:
            command = [sys.executable, "-m", "cluster", "watch", str(self._folder), "--once"]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=True)
            self.out = done.stdout


def test_a_running_campaign_shows_its_progress_and_its_findings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watched = Watched(tmp_path)
    with Store(tmp_path) as store:
        suite = Suite(scenarios_of(NUM_SCENARIOS), store)
        drive(suite, InProcessPool(JUDGE), Stop(), watched, store)
    found, line = watched.out.splitlines()
    assert found.startswith(f"found: {tmp_path}/artefacts/crash-")
    assert line.startswith(f"{tmp_path}: running, ")
    assert " of 9 done, " in line
    assert line.endswith(" left") or line.endswith("/s")
    assert cli.run(["watch", str(tmp_path)]) == 0
    *_, last = capsys.readouterr().out.splitlines()
    assert last == f"{tmp_path}: not running, judged: 9 of 9 scenarios, 1 finding"


def test_what_is_no_campaign_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["watch", str(tmp_path)]) == 2
    assert "is not a campaign" in capsys.readouterr().err


def test_progress_is_written_once_a_second_and_at_the_end_with_rate_and_time_left(tmp_path: Path) -> None:
    times = iter((100.0, 100.5, 102.0, 102.1))
    file = ProgressFile(tmp_path, "r", clock=lambda: next(times), time_of_day=iter((100.0,)).__next__)
    seen = []
    for done in (2, 3, 6, 10):
        file.note(done, 10, 1, 0)
        seen.append(read_progress(tmp_path))
    assert [each and each.done for each in seen] == [2, 2, 6, 10]
    third = Snapshot(run="r", begun=100, now=102, done=6, kept=2, total=10, findings=1, shrinking=0)
    assert (seen[2], third.rate) == (third, 2.0)
    assert seen[3] is not None
    assert seen[3].left == RemainingTime(low=0, high=0)


@pytest.mark.parametrize("jump", [-86_400.0, 86_400.0])
def test_a_clock_that_is_set_during_a_run_changes_neither_its_rate_nor_its_duration(
    tmp_path: Path, jump: float
) -> None:
    times, days = iter((7.0, 9.0)), iter((1e9, 1e9 + jump))
    file = ProgressFile(tmp_path, "r", clock=lambda: next(times), time_of_day=lambda: next(days))
    for done in (2, 6):
        file.note(done, 10, 0, 0)
    seen = read_progress(tmp_path)
    assert seen is not None
    assert (seen.done, seen.begun, seen.rate) == (6, 1e9, 2.0)
    # A run that seems to have begun at another time: the clock was set since.
    begun = datetime.now(UTC) - timedelta(seconds=jump)
    with Store(tmp_path / "store") as store:
        store.run = store.run.model_copy(update={"begun": begun.isoformat()})
    with Campaign(tmp_path / "store") as kept:
        (run,) = kept.runs()
    assert run.seconds is not None
    assert 0 <= run.seconds < 60


def test_the_newest_progress_of_a_campaign_and_those_inside_it_counts_and_a_broken_one_does_not(
    tmp_path: Path,
) -> None:
    assert read_progress(tmp_path) is None
    (tmp_path / "regressions").mkdir()
    for folder, now in ((tmp_path, 5.0), (tmp_path / "regressions", 7.0)):
        ProgressFile(folder, "r", time_of_day=iter((now,)).__next__).note(1, None, 0, 0)
    newest = read_progress(tmp_path)
    assert newest is not None
    assert newest.now == 7.0
    (tmp_path / "regressions" / FILE).write_text("{")
    oldest = read_progress(tmp_path)
    assert oldest is not None
    assert (oldest.now, oldest.left) == (5.0, None)


def test_campaign_without_progress_is_watched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, [])
    assert cli.run(["watch", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path}: not running\n"

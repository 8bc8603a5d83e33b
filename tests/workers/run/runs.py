"""Helpers for tests that inspect a run's checker or its difference."""

from workers.judge.checker import Checker
from workers.record.evidence import Difference
from workers.run.engine_run import Run
from workers.run.panel import Panel


def judged_by(run: Run, checker: Checker) -> Run:
    """Return a run with another checker."""
    panel = run.panel
    judges = tuple(checker if judge is panel.checker else judge for judge in panel.judges)
    assert checker in judges, "an engine that logs its decisions has a checker"
    run.panel = Panel(judges)
    return run


def difference_in(run: Run) -> Difference:
    """Return the difference at the end of a run."""
    found = run.to_end()
    assert isinstance(found, Difference), found
    return found

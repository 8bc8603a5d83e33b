"""Gate for a change of an engine's sources: run scenarios of changed code, then a hunt."""

from collections.abc import Collection
from functools import partial
from pathlib import Path

from cluster.campaigns.budget import Budget, duration_text
from cluster.campaigns.commits import Changes, Repository
from cluster.campaigns.exit_codes import EXIT_AGREED, EXIT_FOUND, EXIT_NOT_JUDGED, exit_code, weightiest
from cluster.campaigns.hunt.planner import HuntPlanner
from cluster.campaigns.suite import Suite
from cluster.storage.provenance import PlannedWork
from workers.record.verdict import is_finding
from workers.shrink.fingerprint import signature_of

# Every gate hunts with the same traces.
SEED = 0
TRACES_MIN = 200
# Shares of the time after which no new scenario, and no new trace, is started. The hunt gets a third at least; the rest
# after `TRACES_END` is for running traces and for shrinking.
SCENARIOS_END = 2 / 3
TRACES_END = 0.85


def changes_of(tree: Path, package: str, base: str, installed: Path | None) -> Changes:
    """Return the files of a source tree that differ from a commit, or from the installation.

    Outside of a git checkout they are compared with the installed files.

    Raises:
        RepositoryError: the commit is unknown, or the base is missing.
    """
    repository = Repository(tree, package)
    if base or installed is None or repository.holds_package():
        return repository.changed(base)
    differing = [
        file.relative_to(tree).as_posix()
        for file in sorted((tree / package).rglob("*.py"))
        if not _is_alike(file, installed / file.relative_to(tree))
    ]
    return Changes(tuple(differing), f"the installation in {installed}", partial(content_in, installed))


def content_in(folder: Path | None, file: str) -> bytes | None:
    """Return the content of a file in a folder, None if it is missing."""
    path = folder / file if folder is not None else None
    return path.read_bytes() if path is not None and path.is_file() else None


def _is_alike(file: Path, other: Path) -> bool:
    return other.is_file() and file.read_bytes() == other.read_bytes()


class Gate:
    """A gate's two stages in one campaign: selected scenarios, then a hunt.

    `budget` is shared.
    """

    def __init__(self, suite: Suite, planner: HuntPlanner, budget: Budget, traces_min: int) -> None:
        self.suite = suite
        self.planner = planner
        self.budget = budget
        self._traces_min = traces_min
        planner.store.plan(PlannedWork(traces=traces_min))
        planner.may_begin = lambda: budget.has_time(TRACES_END)

    @property
    def traces(self) -> int:
        """Return the number of judged traces of the hunt."""
        return self.planner.hunt.totals.tally.traces

    def bugs(self) -> list[str]:
        """Return the fingerprints of all findings, in the order of discovery."""
        return list(dict.fromkeys([*self._by_scenario().values(), *self.planner.bugs()]))

    def judged(self) -> str:
        """Return in words how many scenarios and traces were judged, of how many."""
        count = len(self.suite.scenarios)
        scenarios = f"{count - len(self.suite.missing)} of {count} scenarios"
        return f"{scenarios} and {self.traces} traces of at least {self._traces_min}"

    def cut_short(self) -> str:
        """Return a sentence if the time ended before all planned work was judged; else ""."""
        if not self.suite.missing and self.traces >= self._traces_min:
            return ""
        seconds = f" in {duration_text(self.budget.seconds)}" if self.budget.seconds is not None else ""
        return f"cut short: {self.judged()} were judged{seconds}; give more --minutes or --workers"

    def ran(self) -> frozenset[str]:
        """Return the edited functions that some scenario or trace executed."""
        return self.suite.ran() | self.planner.hunt.totals.ran

    def exit_code(self, known: Collection[str]) -> int:
        """Return the exit code of scenarios and hunt; known findings do not count.

        A part that was cut short counts as not judged.
        """
        by_scenario = self._by_scenario()
        if any(bug not in known for bug in by_scenario.values()):
            return EXIT_FOUND
        results = [
            self.suite.results.get(each.job.key) for each in self.suite.scenarios if each.name not in by_scenario
        ]
        code = exit_code(None if result is None else result.judgement.verdict for result in results)
        short = EXIT_NOT_JUDGED if self.cut_short() else EXIT_AGREED
        return weightiest(code, self.planner.exit_code(known), short)

    def _by_scenario(self) -> dict[str, str]:
        """Return the fingerprint of each scenario with a finding."""
        found = {}
        for scenario in self.suite.scenarios:
            result = self.suite.results.get(scenario.job.key)
            if result is not None and is_finding(result.judgement.verdict):
                signature = signature_of(result.judgement.verdict, result.judgement.trace)
                assert signature is not None, "a finding has a signature"
                found[scenario.name] = signature.bug
        return found

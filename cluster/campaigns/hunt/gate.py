"""Gate for a change of an engine's sources: scenarios chosen by the files that changed, then a hunt."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from cluster.campaigns.budget import Budget, duration_text
from cluster.campaigns.commits import Changes, Repository
from cluster.campaigns.exit_codes import EXIT_AGREED, EXIT_FOUND, EXIT_NOT_JUDGED, exit_code, weightiest
from cluster.campaigns.hunt.planner import HuntPlanner
from cluster.campaigns.suite import Suite
from cluster.storage.provenance import Planned
from workers.record.verdict import is_finding
from workers.shrink.fingerprint import signature_of
from workers.targets.target import Area

# Of every gate: a change is held against the same traces as the one before it.
SEED = 0
TRACES_MIN = 200
# Share of the time after which no trace is begun: the rest is for those that run, and for shrinking.
TRACES_END = 0.85
# The most files of an area that are named.
_NAMED = 2


@dataclass(frozen=True, slots=True)
class Choice:
    """Scenarios chosen for a change, as patterns of their names, and why; `is_all` where all of them are."""

    patterns: tuple[str, ...]
    why: str
    is_all: bool = False

    def takes(self, name: str) -> bool:
        """Tell whether a scenario is chosen, by its name without folder and ending."""
        return self.is_all or any(fnmatch(name, pattern) for pattern in self.patterns)


def choice_of(files: Sequence[str], package: str, areas: Sequence[Area], smoke: Sequence[str]) -> Choice:
    """Return the choice for files of a tree: what their areas ask for, or all if a source is of none.

    Files that are no Python sources of the package run nowhere here.
    """
    sources = [file for file in files if file.startswith(f"{package}/") and file.endswith(".py")]
    if not sources:
        few = f"no Python source of {package} differs"
        return Choice(tuple(smoke), f"{few} ({_named(files)}): a few for smoke" if files else f"{few}: a few for smoke")
    by_area: dict[Area | None, list[str]] = defaultdict(list)
    for source in sources:
        by_area[area_of(source, areas)].append(source)
    if None in by_area:
        return Choice((), f"{_named(by_area[None])} may change anything: all scenarios", is_all=True)
    chosen = {area: names for area, names in by_area.items() if area is not None}
    patterns = dict.fromkeys(pattern for area in chosen for pattern in area.scenarios)
    return Choice(tuple(patterns), ", ".join(f"{area.what} ({_named(names)})" for area, names in chosen.items()))


def area_of(source: str, areas: Sequence[Area]) -> Area | None:
    """Return the area whose prefix of a source's path is the longest, None if there is none."""
    fitting = [(len(prefix), area) for area in areas for prefix in area.prefixes if source.startswith(prefix)]
    return max(fitting, key=lambda each: each[0])[1] if fitting else None


def _named(files: Sequence[str]) -> str:
    more = f" and {len(files) - _NAMED} more" if len(files) > _NAMED else ""
    return f"{', '.join(files[:_NAMED])}{more}"


def changes_of(tree: Path, package: str, base: str, installed: Path | None) -> Changes:
    """Return what of a tree differs from a commit, or of one that is no git checkout, from what is installed.

    Raises:
        RepositoryError: the commit, or what to hold the tree against, is not there.
    """
    repository = Repository(tree, package)
    if base or installed is None or repository.holds_package():
        return repository.changed(base)
    differing = [
        file.relative_to(tree).as_posix()
        for file in sorted((tree / package).rglob("*.py"))
        if not _is_alike(file, installed / file.relative_to(tree))
    ]
    return Changes(tuple(differing), f"what is installed in {installed}")


def _is_alike(file: Path, other: Path) -> bool:
    return other.is_file() and file.read_bytes() == other.read_bytes()


class Gate:
    """Suite of chosen scenarios and the planner of the hunt behind it, in one campaign; `budget` is for both."""

    def __init__(self, suite: Suite, planner: HuntPlanner, budget: Budget, traces_min: int) -> None:
        self.suite = suite
        self.planner = planner
        self.budget = budget
        self._traces_min = traces_min
        planner.store.plan(Planned(traces=traces_min))
        planner.may_begin = lambda: budget.has_time(TRACES_END)

    @property
    def traces(self) -> int:
        """Return the number of traces of the hunt that were judged."""
        return self.planner.hunt.totals.tally.traces

    def bugs(self) -> list[str]:
        """Return the fingerprints of all findings, in the order in which they were met."""
        return list(dict.fromkeys([*self._by_scenario().values(), *self.planner.bugs()]))

    def cut_short(self) -> str:
        """Return in a sentence that the time ended before all was judged that must be, nothing if it did not."""
        missing = len(self.suite.missing)
        if not missing and self.traces >= self._traces_min:
            return ""
        scenarios = f"{missing} of {len(self.suite.scenarios)} scenarios were not judged, and " if missing else ""
        traces = f"{self.traces} of at least {self._traces_min} traces were"
        seconds = f" in {duration_text(self.budget.seconds)}" if self.budget.seconds is not None else ""
        return f"cut short: {scenarios}{traces}{seconds}; it takes more --minutes or --workers"

    def exit_code(self, known: Collection[str]) -> int:
        """Return the exit code of both parts; known findings are left out, what is cut short was not judged."""
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
        """Return the fingerprint of each scenario that is a finding, by name."""
        found = {}
        for scenario in self.suite.scenarios:
            result = self.suite.results.get(scenario.job.key)
            if result is not None and is_finding(result.judgement.verdict):
                signature = signature_of(result.judgement.verdict, result.judgement.trace)
                assert signature is not None, "a finding has a signature"
                found[scenario.name] = signature.bug
        return found

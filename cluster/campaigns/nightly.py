"""Nightly run: planner of regressions, which replays traces of known faults, and the faults measured that night.

Each trace must still be found, and the clean engine must agree on it.
"""

from collections.abc import Iterator, Mapping

from cluster.campaigns.budget import duration_text
from cluster.campaigns.exit_codes import EXIT_AGREED, EXIT_FOUND, EXIT_NOT_JUDGED
from cluster.campaigns.suite import Scenario, Suite
from cluster.dispatch.job import Job
from cluster.storage.store import Store
from scenarios.spec import Value
from scenarios.trace import Trace, problems
from workers.record.verdict import Agreed, Verdict, is_finding, plane
from workers.record.words import finding_lines
from workers.targets.devices import faults_on
from workers.targets.target import DEFAULT_CONFIG, RunConfig

NIGHTS = 7
# Shares of a night at which its parts end: the replay, the hunt's last new trace, its shrinking, the measurement.
REPLAY_END, TRACES_END, HUNT_END, NIGHT_END = 0.4, 0.7, 0.8, 1.0
TRIALS = 3
TRACES = 200
# The most files without a verdict that are named; report.json has all.
_NAMED = 5


def division(hours: float, num_faults: int) -> str:
    """Return the division of a night's time between its parts, in a sentence."""
    if not hours:
        return f"nightly: no bound: the regressions, no hunt, {num_faults} faults measured"
    ends = (duration_text(3600 * hours * share) for share in (REPLAY_END, TRACES_END, HUNT_END, NIGHT_END))
    replay, traces, hunt, night = ends
    return (
        f"nightly: {night} in all: regressions until {replay} at most, then the hunt (last trace begun at {traces}, "
        f"shrinking until {hunt}), then {num_faults} faults measured; what a part leaves goes to the next"
    )


def part_of_the_faults(night: int, nights: int, config: RunConfig = DEFAULT_CONFIG) -> list[str]:
    """Return the faults measured tonight; those of `nights` nights in a row are all that exist on the device."""
    return faults_on(config)[night % nights :: nights]


class RegressionEntry(Value):
    """A trace of known faults: the plane they were found in, and the verdict on the clean engine."""

    file: str
    faults: tuple[str, ...]
    found_in: str | None
    clean: str


class Regressions:
    """Traces of known faults by file, and the verdicts on each, with its faults on and without, under its own schedule.

    `suite` is their planner. `refused` are those that no engine runs without their faults, `elsewhere` those whose
    faults do not exist on the device; the clean engine runs these too.
    """

    def __init__(self, traces: Mapping[str, Trace], store: Store, config: RunConfig = DEFAULT_CONFIG) -> None:
        self.traces = traces
        self.store = store
        clean = {name: trace.model_copy(update={"faults": ()}) for name, trace in traces.items()}
        # A fault may lift a refusal: without it no engine runs the trace at all.
        self.refused = [name for name, trace in clean.items() if problems(trace)]
        here = set(faults_on(config))
        self.elsewhere = [name for name, trace in traces.items() if not here.issuperset(trace.faults)]
        self._faulty = [name for name in traces if name not in self.elsewhere]
        self._clean = [name for name in traces if name not in self.refused]
        pairs = [(name, traces[name]) for name in self._faulty] + [(name, clean[name]) for name in self._clean]
        self.suite = Suite([Scenario(name, Job.of(trace, sweep=False, config=config)) for name, trace in pairs], store)

    @property
    def faulty(self) -> dict[str, Verdict | None]:
        """Return the verdict on each trace with its faults on."""
        return dict(zip(self._faulty, self.suite.verdicts(), strict=False))

    @property
    def clean(self) -> dict[str, Verdict | None]:
        """Return the verdict on each trace without its faults."""
        return dict(zip(self._clean, self.suite.verdicts()[len(self._faulty) :], strict=True))

    @property
    def missed(self) -> list[str]:
        """Return the files whose faults are not found any more."""
        looked_for = (entry for entry in self.entries() if entry.faults and entry.file not in self.elsewhere)
        return [entry.file for entry in looked_for if entry.found_in is None]

    @property
    def failing(self) -> list[str]:
        """Return the files on which the clean engine does not agree."""
        return [name for name, verdict in self.clean.items() if not isinstance(verdict, Agreed)]

    def exit_code(self) -> int:
        """Return the exit code of the replay: a clean engine that fails outweighs a fault that is missed."""
        if any(verdict is not None and is_finding(verdict) for verdict in self.clean.values()):
            return EXIT_FOUND
        return EXIT_NOT_JUDGED if self.failing or self.missed else EXIT_AGREED

    def lines(self) -> Iterator[str]:
        """Yield the report, a line at a time."""
        known = sum(bool(trace.faults) for trace in self.traces.values())
        found = known - len(self.elsewhere) - len(self.missed)
        clean = self.clean
        agreed = sum(isinstance(verdict, Agreed) for verdict in clean.values())
        yield f"regressions: {len(self.traces)} traces; {found} known faults found, clean engine agrees on {agreed}"
        if self.elsewhere:
            yield f"  not looked for: the faults of {len(self.elsewhere)} traces do not exist on this device"
        yield from (f"  NOT FOUND any more: {name}" for name in self.missed)
        unjudged = [name for name in self.failing if clean[name] is None]
        if unjudged:
            more = f", and {len(unjudged) - _NAMED} more" if len(unjudged) > _NAMED else ""
            yield f"  not judged: {', '.join(unjudged[:_NAMED])}{more}"
        for name in self.failing:
            verdict = clean[name]
            if verdict is not None:
                yield f"  CLEAN ENGINE FAILS: {name}"
                yield from (f"    {line}" for line in finding_lines(verdict))

    def entries(self) -> tuple[RegressionEntry, ...]:
        """Return the report as values."""
        entries = []
        verdicts, verdicts_clean = self.faulty, self.clean
        for name, trace in self.traces.items():
            faulty, clean = verdicts.get(name), verdicts_clean.get(name)
            found = plane(faulty) if faulty is not None and is_finding(faulty) else None
            state = "refused" if name in self.refused else "not run" if clean is None else clean.kind
            entries.append(RegressionEntry(file=name, faults=trace.faults, found_in=found, clean=state))
        return tuple(entries)

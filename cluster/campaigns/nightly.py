"""Nightly run: planner of regressions, which replays traces of known faults, and the faults measured that night.

Each trace must still be found, and the clean engine must agree on it.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import TypeGuard

from cluster.campaigns.budget import duration_text
from cluster.campaigns.exit_codes import EXIT_AGREED, EXIT_FOUND, EXIT_NOT_JUDGED
from cluster.campaigns.planner import Counts
from cluster.campaigns.regression_counts import RegressionCounts, regression_counts
from cluster.campaigns.suite import Scenario, Suite, planned_jobs
from cluster.dispatch.job import Job
from cluster.storage.store import Store
from scenarios.spec import Value
from scenarios.trace import Trace, problems
from workers.record.verdict import Agreed, Lost, Verdict, is_finding, plane
from workers.record.words import finding_lines
from workers.targets.devices import faults_on
from workers.targets.target import DEFAULT_CONFIG, RunConfig

NIGHTS = 7
# Shares of a night at which its parts end: the replay, the hunt's last new trace, its shrinking, the measurement.
REPLAY_END, TRACES_END, HUNT_END, NIGHT_END = 0.4, 0.7, 0.8, 1.0
TRIALS = 3
TRACES = 200
# Fractions of it lie as evenly in a list as any, however many nights there are.
GOLDEN_RATIO = (5**0.5 - 1) / 2
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


def night_number(seed: int) -> int:
    """Return the number of a night, that of its day where its seed is a date; nights in a row have numbers in a row."""
    try:
        return date.fromisoformat(str(seed)).toordinal()
    except ValueError:
        return seed


def part_of_the_faults(night: int, nights: int, config: RunConfig = DEFAULT_CONFIG) -> list[str]:
    """Return the faults measured tonight; those of `nights` nights in a row are all that exist on the device.

    A part begins with another of its faults each time.
    """
    return rotated(faults_on(config)[night % nights :: nights], night // nights)


def rotated(names: Sequence[str], night: int) -> list[str]:
    """Return names from another place of their list each night, so that nights that end early come to each."""
    begin = int(len(names) * (night * GOLDEN_RATIO % 1.0))
    return [*names[begin:], *names[:begin]]


# State of a regression to which the night did not come.
NOT_JUDGED = "not judged"


class PartEntry(Value):
    """Duration of one part of a night, and its number of regressions, hunt traces or trials."""

    seconds: float
    done: int


class RegressionEntry(Value):
    """A trace of known faults: the plane they were found in, and the verdicts with them and on the clean engine."""

    file: str
    faults: tuple[str, ...]
    found_in: str | None
    faulty: str
    clean: str


class Replay(Suite):
    """Suite of traces of known faults: a finding with its faults on is expected."""

    def regressions(self) -> RegressionCounts:
        """Return the counts of the regressions so far."""
        results = {key: result.judgement for key, result in self.results.items()}
        seen = {key: (bool(each.trace.faults), each.verdict.kind) for key, each in results.items()}
        return regression_counts(planned_jobs(self.scenarios), seen)

    def counts(self) -> Counts:
        """Return how far the replay is, in regressions."""
        regressions = self.regressions()
        findings = [each.judgement for each in self.results.values() if is_finding(each.judgement.verdict)]
        others = sum(not each.trace.faults for each in findings)
        return Counts(regressions.judged, regressions.planned, others, expected=regressions.found)


class Regressions:
    """Traces of known faults by file, and the verdicts on each, with its faults on and without, under its own schedule.

    `suite` is their planner, which begins with another of them each night. `refused` are those that no engine runs
    without their faults, `elsewhere` those whose faults do not exist on the device; the clean engine runs these too.
    """

    def __init__(
        self, traces: Mapping[str, Trace], store: Store, config: RunConfig = DEFAULT_CONFIG, night: int = 0
    ) -> None:
        self.traces = traces
        self.store = store
        # Of the time that the replay has taken.
        self.seconds = 0.0
        clean = {name: trace.model_copy(update={"faults": ()}) for name, trace in traces.items()}
        # A fault may lift a refusal: without it no engine runs the trace at all.
        self.refused = [name for name, trace in clean.items() if problems(trace)]
        here = set(faults_on(config))
        self.elsewhere = [name for name, trace in traces.items() if not here.issuperset(trace.faults)]
        self._faulty = {
            name: Job.of(trace, sweep=False, config=config)
            for name, trace in traces.items()
            if name not in self.elsewhere
        }
        self._clean = {
            name: Job.of(trace, sweep=False, config=config) for name, trace in clean.items() if name not in self.refused
        }
        self.suite = Replay(
            [
                Scenario(name, jobs[name])
                for name in rotated(list(traces), night)
                for jobs in (self._faulty, self._clean)
                if name in jobs
            ],
            store,
        )

    @property
    def faulty(self) -> dict[str, Verdict | None]:
        """Return the verdict on each trace with its faults on, None where it was not judged."""
        return self._verdicts(self._faulty)

    @property
    def clean(self) -> dict[str, Verdict | None]:
        """Return the verdict on each trace without its faults, None where it was not judged."""
        return self._verdicts(self._clean)

    def _verdicts(self, jobs: Mapping[str, Job]) -> dict[str, Verdict | None]:
        results = {name: self.suite.results.get(job.key) for name, job in jobs.items()}
        return {name: None if result is None else result.judgement.verdict for name, result in results.items()}

    @property
    def missed(self) -> list[str]:
        """Return the files whose faults were looked for and are not found any more."""
        looked_for = {name: verdict for name, verdict in self.faulty.items() if self.traces[name].faults}
        return [name for name, verdict in looked_for.items() if _is_judged(verdict) and not is_finding(verdict)]

    @property
    def failing(self) -> list[str]:
        """Return the files on which the clean engine does not agree."""
        return [name for name, verdict in self.clean.items() if _is_judged(verdict) and not isinstance(verdict, Agreed)]

    @property
    def lost(self) -> dict[str, Lost]:
        """Return the files whose judgement was lost, with the reason."""
        both = (*self.faulty.items(), *self.clean.items())
        return {name: verdict for name, verdict in both if isinstance(verdict, Lost)}

    @property
    def unjudged(self) -> list[str]:
        """Return the files that were not judged, with their faults or without, when the time for it ended."""
        verdicts = (self.faulty, self.clean)
        return [name for name in self.traces if any(name in each and each[name] is None for each in verdicts)]

    def exit_code(self) -> int:
        """Return the exit code of the replay: a clean engine that fails outweighs a fault that is missed.

        That a budget ended before all were judged is no failure, unless none was.
        """
        if any(verdict is not None and is_finding(verdict) for verdict in self.clean.values()):
            return EXIT_FOUND
        is_none_judged = bool(self.traces) and not self.suite.results
        return EXIT_NOT_JUDGED if self.failing or self.missed or self.lost or is_none_judged else EXIT_AGREED

    def lines(self) -> Iterator[str]:
        """Yield the report, a line at a time."""
        clean = self.clean
        yield f"regressions: {self._counted()}"
        if self.elsewhere:
            yield f"  not looked for: the faults of {len(self.elsewhere)} traces do not exist on this device"
        yield from (f"  NOT FOUND any more: {name}" for name in self.missed)
        yield from (f"  lost: {name}: {verdict.reason}" for name, verdict in self.lost.items())
        unjudged = self.unjudged
        if unjudged:
            more = f", and {len(unjudged) - _NAMED} more" if len(unjudged) > _NAMED else ""
            yield f"  not judged before the time for it ended: {', '.join(unjudged[:_NAMED])}{more}{self._needed()}"
        for name in self.failing:
            yield f"  CLEAN ENGINE FAILS: {name}"
            verdict = clean[name]
            assert _is_judged(verdict), "it fails"
            yield from (f"    {line}" for line in finding_lines(verdict))

    def _counted(self) -> str:
        """Return the counts of the regressions in words."""
        counts = self.suite.regressions()
        if not counts.planned:
            return "none for this engine"
        judged = f"{counts.judged} of {counts.planned} judged"
        texts = [judged] if counts.judged else [f"none of {counts.planned} judged"]
        if counts.faulty:
            texts.append(f"the faults of {counts.found} of {counts.faulty} found")
        if counts.clean:
            texts.append(f"the clean engine agreed on {counts.agreed} of {counts.clean}")
        return ", ".join(texts)

    def _needed(self) -> str:
        """Return the time that all would need, as far as the pace of those that were judged says."""
        judged = len(self.suite.results) - self.suite.kept
        if not judged or not self.seconds:
            return ""
        needed = self.seconds * len({scenario.job.key for scenario in self.suite.scenarios}) / judged
        hours = needed / REPLAY_END / 3600
        return f"; all need about {duration_text(needed)}, which is {REPLAY_END:.0%} of --hours {hours:.2g}"

    def entries(self) -> tuple[RegressionEntry, ...]:
        """Return the report as values."""
        entries = []
        verdicts, verdicts_clean = self.faulty, self.clean
        for name, trace in self.traces.items():
            faulty, clean = verdicts.get(name), verdicts_clean.get(name)
            entries.append(
                RegressionEntry(
                    file=name,
                    faults=trace.faults,
                    found_in=plane(faulty) if faulty is not None and is_finding(faulty) else None,
                    faulty="elsewhere" if name in self.elsewhere else _state(faulty),
                    clean="refused" if name in self.refused else _state(clean),
                )
            )
        return tuple(entries)


def _is_judged(verdict: Verdict | None) -> TypeGuard[Verdict]:
    return verdict is not None and not isinstance(verdict, Lost)


def _state(verdict: Verdict | None) -> str:
    return NOT_JUDGED if verdict is None else verdict.kind

"""Nightly run: replay regressions, and choose the faults to measure.

The regressions are traces of known faults.

Each trace must still reveal its fault, and the clean engine must agree with the model on it.
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
# Multiples of it modulo 1 are spread evenly over a list, for any number of nights.
GOLDEN_RATIO = (5**0.5 - 1) / 2
# The most files without a verdict that are listed; report.json has all.
_NAMED = 5


def division(hours: float, num_faults: int) -> str:
    """Return a sentence that says how much of a night each part gets."""
    if not hours:
        return f"nightly: no bound: the regressions, no hunt, {num_faults} faults measured"
    ends = (duration_text(3600 * hours * share) for share in (REPLAY_END, TRACES_END, HUNT_END, NIGHT_END))
    replay, traces, hunt, night = ends
    return (
        f"nightly: {night} in all: regressions until {replay} at most, then the hunt (last trace begun at {traces}, "
        f"shrinking until {hunt}), then {num_faults} faults measured; what a part leaves goes to the next"
    )


def night_number(seed: int) -> int:
    """Return the number of a night: its day if the seed is a date, else the seed.

    The numbers of consecutive nights differ by 1.
    """
    try:
        return date.fromisoformat(str(seed)).toordinal()
    except ValueError:
        return seed


def part_of_the_faults(night: int, nights: int, config: RunConfig = DEFAULT_CONFIG) -> list[str]:
    """Return the faults to measure tonight: every `nights`-th that the device supports.

    Consecutive nights begin with different faults.

    `nights` consecutive nights measure all that the device supports.

    A part is rotated each time, so that it begins with another fault.
    """
    return rotate_names(faults_on(config)[night % nights :: nights], night // nights)


def rotate_names(names: Sequence[str], night: int) -> list[str]:
    """Return the names rotated, each night by another number of positions.

    So even nights that end early reach each name at some time.
    """
    begin = int(len(names) * (night * GOLDEN_RATIO % 1.0))
    return [*names[begin:], *names[:begin]]


# State of a regression that the night did not reach.
NOT_JUDGED = "not judged"


class PartEntry(Value):
    """Duration of one part of a night, and how much of it was done."""

    seconds: float
    done: int


class RegressionEntry(Value):
    """Result of a regression: its verdicts with and without the known fault.

    `faulty` is the verdict with the faults on, `clean` the one on the clean engine.
    """

    file: str
    faults: tuple[str, ...]
    found_in: str | None
    faulty: str
    clean: str


class Replay(Suite):
    """Planner that replays regressions (traces of faults); with faults on, each has a finding."""

    def regressions(self) -> RegressionCounts:
        """Return the counts of the regressions so far."""
        results = {key: result.judgement for key, result in self.results.items()}
        seen = {key: (bool(each.trace.faults), each.verdict.kind) for key, each in results.items()}
        return regression_counts(planned_jobs(self.scenarios), seen)

    def counts(self) -> Counts:
        """Return the number of judged and planned regressions, as progress."""
        regressions = self.regressions()
        findings = [each.judgement for each in self.results.values() if is_finding(each.judgement.verdict)]
        others = sum(not each.trace.faults for each in findings)
        return Counts(regressions.judged, regressions.planned, others, expected=regressions.found)


class Regressions:
    """Regressions (traces of known faults) by file, with verdicts with and without faults.

    `suite` is their planner; each night it starts with another trace. `refused` are the traces that no engine runs
    without their faults, `elsewhere` those with faults that the device does not support; the clean engine runs the
    latter.
    """

    def __init__(
        self, traces: Mapping[str, Trace], store: Store, config: RunConfig = DEFAULT_CONFIG, night: int = 0
    ) -> None:
        self.traces = traces
        self.store = store
        # Seconds of the replay so far.
        self.seconds = 0.0
        clean = {name: trace.model_copy(update={"faults": ()}) for name, trace in traces.items()}
        # A fault may lift a refusal: without it no engine runs the trace.
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
                for name in rotate_names(list(traces), night)
                for jobs in (self._faulty, self._clean)
                if name in jobs
            ],
            store,
        )

    @property
    def faulty(self) -> dict[str, Verdict | None]:
        """Return each trace's verdict with its faults on; None if it has none yet."""
        return self._verdicts(self._faulty)

    @property
    def clean(self) -> dict[str, Verdict | None]:
        """Return each trace's verdict without its faults; None if it has none yet."""
        return self._verdicts(self._clean)

    def _verdicts(self, jobs: Mapping[str, Job]) -> dict[str, Verdict | None]:
        results = {name: self.suite.results.get(job.key) for name, job in jobs.items()}
        return {name: None if result is None else result.judgement.verdict for name, result in results.items()}

    @property
    def missed(self) -> list[str]:
        """Return the files whose faults are no longer found."""
        looked_for = {name: verdict for name, verdict in self.faulty.items() if self.traces[name].faults}
        return [name for name, verdict in looked_for.items() if _is_judged(verdict) and not is_finding(verdict)]

    @property
    def failing(self) -> list[str]:
        """Return the files whose verdict without faults is not `Agreed`."""
        return [name for name, verdict in self.clean.items() if _is_judged(verdict) and not isinstance(verdict, Agreed)]

    @property
    def lost(self) -> dict[str, Lost]:
        """Return, by file, the verdicts of regressions whose workers were lost."""
        both = (*self.faulty.items(), *self.clean.items())
        return {name: verdict for name, verdict in both if isinstance(verdict, Lost)}

    @property
    def unjudged(self) -> list[str]:
        """Return the files with a missing verdict when the time ended."""
        verdicts = (self.faulty, self.clean)
        return [name for name in self.traces if any(name in each and each[name] is None for each in verdicts)]

    def exit_code(self) -> int:
        """Return the exit code for the regressions.

        A failure of the clean engine outweighs a missed fault.

        A replay that is cut short by its budget does not fail, unless it judged nothing.
        """
        if any(verdict is not None and is_finding(verdict) for verdict in self.clean.values()):
            return EXIT_FOUND
        is_none_judged = bool(self.traces) and not self.suite.results
        return EXIT_NOT_JUDGED if self.failing or self.missed or self.lost or is_none_judged else EXIT_AGREED

    def lines(self) -> Iterator[str]:
        """Yield the lines of the night's report on regressions."""
        clean = self.clean
        yield f"regressions: {self._counts_text()}"
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

    def _counts_text(self) -> str:
        """Return in words how many regressions were judged, found, and agree without faults."""
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
        """Return the estimated time for all regressions, from those already judged."""
        judged = len(self.suite.results) - self.suite.kept
        if not judged or not self.seconds:
            return ""
        needed = self.seconds * len({scenario.job.key for scenario in self.suite.scenarios}) / judged
        hours = needed / REPLAY_END / 3600
        return f"; all need about {duration_text(needed)}, which is {REPLAY_END:.0%} of --hours {hours:.2g}"

    def entries(self) -> tuple[RegressionEntry, ...]:
        """Return the result of each regression for the JSON report."""
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

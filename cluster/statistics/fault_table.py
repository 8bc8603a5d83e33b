"""Fault table: the results of trials by fault, as text and JSON."""

from collections import Counter
from collections.abc import Iterator, Sequence

from cluster.dispatch.job import build
from cluster.dispatch.origin import ROOT
from cluster.statistics.survival import Median, Time, median
from scenarios import codec
from scenarios.spec import Value
from workers.faults.registry import FAULTS
from workers.run.trials import Trial

REGRESSIONS = ROOT / "scenarios" / "regressions"


class Line(Value):
    """Results of all trials of one fault.

    Medians over trials (Kaplan-Meier) with 95 % bounds, and totals.

    `planes` counts the trials by what found the fault, as plane:variable.
    """

    fault: str
    expected_plane: str
    trials: int
    detected: int
    traces: Median
    steps: Median
    seconds: Median
    judged: int
    reached: int
    triggered: int
    planes: dict[str, int]
    baseline: bool
    against_synchronous: int
    against_correct: int
    against_correct_traces: Median
    shrunk_events: int | None
    shrunk_holds: int | None

    @property
    def by_plane(self) -> Counter[str]:
        """Return the number of trials that found the fault, by state category (plane)."""
        counts: Counter[str] = Counter()
        for by, count in self.planes.items():
            counts[by.partition(":")[0]] += count
        return counts


class Document(Value):
    """Base of a command's JSON documents: the build that wrote it, and the exit code."""

    specstorm: str
    exit_code: int


class FaultValues(Value):
    """Results of trials: a line per fault, all trials, and the `lost` ones."""

    faults: tuple[Line, ...]
    trials: tuple[Trial, ...]
    lost: tuple[str, ...]


class MeasureDocument(FaultValues, Document):
    """JSON document of a measurement of faults; `FaultValues` has the fields."""


def line_of(trials: Sequence[Trial]) -> Line:
    """Return the results of all trials of one fault."""
    found = [trial.detected.at is not None for trial in trials]

    def over(values: Sequence[float]) -> Median:
        return median([Time(at, happened) for at, happened in zip(values, found, strict=True)])

    regression = REGRESSIONS / f"{trials[0].fault}.yaml"
    shrunk = codec.load(regression) if regression.is_file() else None
    correct = [
        Time(trial.against_correct.at or trial.traces_max, trial.against_correct.at is not None) for trial in trials
    ]
    return Line(
        fault=trials[0].fault,
        expected_plane=FAULTS[trials[0].fault].plane,
        trials=len(trials),
        detected=sum(found),
        traces=over([trial.judged for trial in trials]),
        steps=over([trial.steps for trial in trials]),
        seconds=over([trial.seconds for trial in trials]),
        judged=sum(trial.judged for trial in trials),
        reached=sum(trial.reached for trial in trials),
        triggered=sum(trial.triggered for trial in trials),
        planes=dict(Counter(f"{trial.plane}:{trial.variable}" for trial in trials if trial.plane).most_common()),
        baseline=all(trial.baseline for trial in trials),
        against_synchronous=sum(trial.against_synchronous.at is not None for trial in trials),
        against_correct=sum(trial.against_correct.at is not None for trial in trials),
        against_correct_traces=median(correct),
        shrunk_events=None if shrunk is None else len(shrunk.events),
        shrunk_holds=None if shrunk is None else len(shrunk.schedule.holds),
    )


def table(lines: Sequence[Line]) -> list[str]:
    """Return the lines of a table for the terminal, and their totals."""
    width = max((len(line.fault) for line in lines), default=0)
    columns = "found  traces to detection  steps  seconds  reached triggered  outputs: sync correct  events  by"
    printed = [f"{'fault':{width}}  {columns}"]
    for line in lines:
        by = next(iter(line.planes), "")
        printed.append(
            f"{line.fault:{width}}  {line.detected:2}/{line.trials:2}  {_bounds(line.traces):19}  "
            f"{_number(line.steps.at):>5}  {_number(line.seconds.at, 2):>7}  "
            f"{_share(line.reached, line.judged):>7} {_share(line.triggered, line.judged):>9}  "
            f"{_outputs(line, line.against_synchronous):>13}  {_outputs(line, line.against_correct):>6}  "
            f"{_number(line.shrunk_events):>6}  {by}"
        )
    found = sum(line.detected == line.trials for line in lines)
    as_expected = sum(line.by_plane[line.expected_plane] for line in lines)
    total = sum(line.detected for line in lines)
    printed.append("")
    printed.append(
        f"found in every trial: {found} of {len(lines)} faults; in the expected plane: {as_expected} of {total}"
    )
    if not all(line.baseline for line in lines):
        return [*printed, "outputs were not compared"]
    synchronous = sum(line.against_synchronous > 0 for line in lines)
    correct = sum(line.against_correct > 0 for line in lines)
    printed.append(
        f"found by outputs in any trial: {synchronous} against a synchronous run of the same code, "
        f"{correct} against correct code"
    )
    return printed


def _bounds(value: Median) -> str:
    return f"{_number(value.at):>5} [{_number(value.low)}, {_number(value.high)}]"


def _number(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _outputs(line: Line, found: int) -> str:
    return f"{found}/{line.trials:2}" if line.baseline else "-"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "-"


def measure_document(lines: Sequence[Line], trials: Sequence[Trial], lost: Sequence[str], code: int) -> MeasureDocument:
    """Return the results of all trials as a JSON document."""
    return MeasureDocument(
        specstorm=build(), exit_code=code, faults=tuple(lines), trials=tuple(trials), lost=tuple(lost)
    )


def by_fault(trials: Sequence[Trial]) -> Iterator[Line]:
    """Yield the results of each fault that has trials."""
    for fault in dict.fromkeys(trial.fault for trial in trials):
        yield line_of([trial for trial in trials if trial.fault == fault])

"""Report and progress of scenarios, as text and as JSON documents."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TextIO

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as RichBar
from rich.table import Table

from cluster.campaigns.budget import duration_text
from cluster.campaigns.planner import Counts
from cluster.campaigns.suite import Scenario, Suite
from cluster.dispatch.job import build, typed_command
from cluster.reports.terminal import console_on, printable, show, show_table
from cluster.statistics.fault_table import Document
from cluster.storage.artefact import portable
from cluster.storage.pace import Pace, RemainingTime
from scenarios.spec import Value
from workers.record.verdict import Agreed, Judgement, Lost, Outcome, Verdict, is_finding
from workers.record.words import finding_lines, outcome_lines

INDENT = " " * 10
LINE_SECONDS = 10.0
# Characters between two columns, and the minimum width of a name.
GAP, NAME_MIN = 2, 12
_COLUMNS = ("requests", "steps", "captures", "schedules", "run-ahead")


@dataclass(frozen=True, slots=True)
class Line:
    """Result of one scenario; `judgement` is None if it was not judged.

    `artefact` is a path inside the campaign directory, `replay` a command that reproduces the verdict.
    """

    scenario: str
    judgement: Judgement | None
    artefact: str | None = None
    replay: str | None = None

    @property
    def verdict(self) -> Verdict | None:
        """Return the scenario's verdict, None without a judgement."""
        return None if self.judgement is None else self.judgement.verdict

    @property
    def kind(self) -> str:
        """Return the kind of the scenario's verdict as one word."""
        return "not run" if self.verdict is None else self.verdict.kind


def line_of(suite: Suite, scenario: Scenario, folder: Path) -> Line:
    """Return the result of a scenario of a suite whose campaign is in a folder."""
    name, key, config = scenario.name, scenario.job.key, scenario.job.config
    result = suite.results.get(key)
    if result is None:
        return Line(name, None)
    replay = None
    if result.artefact is not None:
        replay = typed_command("replay", folder / result.artefact, config)
    elif isinstance(result.judgement.verdict, Lost):
        replay = typed_command("run --ray off", folder / "running" / f"{key}.yaml", config)
    return Line(name, result.judgement, result.artefact, replay)


def print_report(lines: Sequence[Line], stream: TextIO, remarks: Sequence[str] = (), is_quiet: bool = False) -> None:
    """Print a line per scenario, a block per scenario that does not agree, and a summary.

    With `is_quiet` the lines are left out.
    """
    if not is_quiet:
        show_table(partial(_table, lines), stream)
    for line in lines:
        show(*block(line), to=stream)
    show("", summary(lines), *remarks, to=stream)


def _table(lines: Sequence[Line], width: int) -> Table:
    """Return the table for a width; columns are dropped from the left if it is too small.

    A name that is still too long is cut at its start, since names differ at their ends.
    """
    rows = [(_numbers(line.judgement), line) for line in lines]
    widths = [max(len(head), *(len(numbers[n]) for numbers, _ in rows)) for n, head in enumerate(_COLUMNS)]
    names = [printable(line.scenario) for line in lines]
    name = max(len("scenario"), *map(len, names))
    verdict = max(len("verdict"), *(len(line.kind) for line in lines))
    first = next(
        (n for n in range(len(widths)) if name + verdict + GAP + sum(each + GAP for each in widths[n:]) <= width),
        len(widths),
    )
    name_max = max(NAME_MIN, width - verdict - GAP - sum(each + GAP for each in widths[first:]))
    table = Table(box=None, pad_edge=False)
    table.add_column("scenario", no_wrap=True)
    for column in _COLUMNS[first:]:
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for text, (numbers, line) in zip(names, rows, strict=True):
        style = "red" if line.verdict is not None and is_finding(line.verdict) else None
        table.add_row(_cut(text, name_max), *numbers[first:], line.kind, style=style)
    return table


def _cut(name: str, width: int) -> str:
    return name if len(name) <= width else f"...{name[len(name) - width + 3 :]}"


def _numbers(judgement: Judgement | None) -> tuple[str, ...]:
    if judgement is None or isinstance(judgement.verdict, Lost):
        return ("-",) * len(_COLUMNS)
    stats = judgement.verdict.stats
    numbers = (stats.requests, stats.steps, stats.captures, judgement.schedules, stats.run_ahead_max)
    return tuple(f"{number:,}" for number in numbers)


def block(line: Line) -> Iterator[str]:
    """Yield the lines on a scenario's finding, with its replay command.

    Nothing for one that agreed completely or was not run.
    """
    if line.judgement is None:
        return
    if isinstance(line.judgement.verdict, Agreed):
        if line.judgement.verdict.stats.probes.get("ambiguous_decision"):
            yield ""
            yield f"AGREED    {line.scenario}"
            yield f"{INDENT}up to a token that may as well have been another; nothing is compared from there on"
        return
    yield ""
    yield f"{line.kind.upper():<9} {line.scenario}"
    texts = finding_lines(line.judgement.verdict) + outcome_lines(line.judgement.verdict, line.judgement.outcomes)
    if line.artefact is not None:
        texts.append(line.artefact)
    if line.replay is not None:
        texts.append(f"replay: {line.replay}")
    for text in texts:
        for part in text.splitlines():
            yield f"{INDENT}{part}"


def summary(lines: Sequence[Line]) -> str:
    """Return a sentence: how many scenarios have each verdict."""
    counts = Counter(line.kind for line in lines)
    kinds = ("agreed", "diverged", "crashed", "stuck", "vacuous", "lost", "not run")
    parts = [f"{counts[kind]} {kind}" for kind in kinds if counts[kind]]
    return f"{len(lines)} {'scenario' if len(lines) == 1 else 'scenarios'}: {', '.join(parts)}"


class ScenarioEntry(Value):
    """Result of one scenario; without a result only its name.

    `artefact` is a path inside the campaign directory.
    """

    scenario: str
    verdict: Verdict | None = None
    seed: int | None = None
    faults: tuple[str, ...] = ()
    schedules: int = 0
    outcomes: tuple[Outcome, ...] = ()
    artefact: str | None = None


class RunDocument(Document):
    """Results of scenarios; `summary` counts them by kind of verdict."""

    summary: dict[str, int]
    scenarios: tuple[ScenarioEntry, ...]


class ShrinkDocument(RunDocument):
    """Result of shrinking a trace.

    `events_before` events became `events` in `checks` runs; `complete` says that no candidate was left to try.
    """

    events_before: int
    events: int
    checks: int
    complete: bool


def document(lines: Sequence[Line], exit_code: int) -> RunDocument:
    """Return the results of scenarios as a JSON document, independent of host, time and pool."""
    counts = Counter(line.kind for line in lines)
    entries = tuple(_entry(line) for line in lines)
    return RunDocument(specstorm=build(), exit_code=exit_code, summary=dict(sorted(counts.items())), scenarios=entries)


def _entry(line: Line) -> ScenarioEntry:
    if line.judgement is None:
        return ScenarioEntry(scenario=portable(line.scenario))
    return ScenarioEntry(
        scenario=portable(line.scenario),
        verdict=line.judgement.verdict,
        seed=line.judgement.trace.seed,
        faults=line.judgement.trace.faults,
        schedules=line.judgement.schedules,
        outcomes=line.judgement.outcomes,
        artefact=line.artefact,
    )


class LineProgress:
    """Progress as a line every ten seconds, for logs."""

    every = LINE_SECONDS

    def __init__(self, stream: IO[str], units: str = "scenarios", clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._units = units
        self._clock = clock
        self._begin = self._last = clock()
        self._done_before: int | None = None
        self.pace = Pace()

    def update(self, counts: Counts) -> None:
        now = self._clock()
        if self._done_before is None:
            self._done_before = counts.done
        self.pace.note(now, counts.done)
        if now - self._last < self.every:
            return
        self._last = now
        seconds = now - self._begin
        self.show(self.text(counts, (counts.done - self._done_before) / seconds, seconds))

    def text(self, counts: Counts, rate: float, seconds: float) -> str:
        """Return the line, given the rate and the seconds since the start."""
        of = "" if counts.total is None else f"/{counts.total}"
        found = findings_text(counts.findings, counts.expected)
        parts = [f"{counts.done}{of} {self._units}", f"{rate:.2f}/s", found]
        return ", ".join([*parts, *left_texts(self.pace.left(counts.total))])

    def show(self, text: str) -> None:
        """Print the progress line."""
        show(text, to=self._stream)

    def close(self) -> None:
        """Do nothing: progress lines stay in the log."""


class BarProgress:
    """Progress as a bar, for terminals."""

    def __init__(self, units: str = "scenarios") -> None:
        text = "{task.description}, {task.fields[told]}"
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn(text))
        self._bar = RichBar(*columns, console=console_on(sys.stderr), transient=True)
        self._task = self._bar.add_task(units, total=None, told="-/s")
        self._pace = Pace()
        self._begin, self._done_before = time.monotonic(), -1
        self._bar.start()

    def update(self, counts: Counts) -> None:
        if self._done_before < 0:
            self._done_before = counts.done
        now = time.monotonic()
        seconds = now - self._begin
        self._pace.note(now, counts.done)
        rate = f"{(counts.done - self._done_before) / seconds:.2f}/s" if seconds > 0 else "-/s"
        found = findings_text(counts.findings, counts.expected)
        told = ", ".join([rate, found, *left_texts(self._pace.left(counts.total))])
        self._bar.update(self._task, completed=counts.done, total=counts.total, told=told)

    def close(self) -> None:
        """Remove the progress bar from the terminal."""
        self._bar.stop()


def findings_text(count: int, expected: int | None = None) -> str:
    """Return a number of findings in words.

    `expected` findings of planted faults are counted separately.
    """
    if expected is not None:
        return f"{expected} found that must be, {count or 'no'} other {'finding' if count == 1 else 'findings'}"
    return f"{count} {'finding' if count == 1 else 'findings'}"


def left_texts(left: RemainingTime | None) -> list[str]:
    """Return in words how much time is left, as a range if uncertain.

    An empty list without an estimate.
    """
    if left is None:
        return []
    low, high = (_coarse(seconds) for seconds in (left.low, left.high))
    return [f"about {high} left" if low == high else f"{low} to {high} left"]


def _coarse(seconds: float) -> str:
    """Return a duration rounded to two significant digits."""
    return duration_text(float(f"{seconds:.2g}") if seconds >= 1 else 1.0)


def progress_for(stream: TextIO, units: str = "scenarios") -> LineProgress | BarProgress:
    """Return the progress display for a stream: a bar on a terminal, else lines."""
    return BarProgress(units) if stream is sys.stderr and stream.isatty() else LineProgress(stream, units)

"""Measure how soon each fault is found: trials of random traces, every check beside a comparison of outputs.

A trial ends when a fault is found, or is given up after a number of traces. The traces of trial t are those of seeds
t * 1,000,000 and on, under their own schedules, as they are drawn: one that does not meet what the fault requires
counts as well.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence

from cluster.survival import Median, Time, median
from scenarios.spec import Value
from scenarios.strategies import random_trace
from workers.faults.registry import FAULTS
from workers.tape import Tapes
from workers.trial import compare_outputs, shoot

SEEDS_PER_TRIAL = 1_000_000


class Found(Value):
    """How many traces it took; None if they were not enough."""

    at: int | None = None


class Trial(Value):
    """One trial: how many of its traces reached and triggered the fault, and what found it when.

    `steps` and `seconds` are those of the traces that our checks judged, until they found it.
    """

    fault: str
    number: int
    traces_max: int
    judged: int
    reached: int
    triggered: int
    steps: int
    seconds: float
    plane: str
    variable: str
    detected: Found
    against_synchronous: Found
    against_correct: Found


def run_trial(
    fault: str, number: int, traces_max: int, tapes: Tapes, clock: Callable[[], float] = time.perf_counter
) -> Trial:
    """Run one trial; the baselines see the traces from the first on as well, until each of them has found it."""
    judged = reached = triggered = steps = 0
    seconds, plane, variable = 0.0, "", ""
    detected = synchronous = correct = None
    for count in range(1, traces_max + 1):
        trace = random_trace(number * SEEDS_PER_TRIAL + count - 1).explicit()
        if detected is None:
            start = clock()
            shot = shoot(fault, trace, tapes)
            seconds += clock() - start
            judged, reached, triggered = count, reached + shot.reached, triggered + shot.triggered
            steps += shot.steps
            if shot.plane:
                detected, plane, variable = count, shot.plane, shot.variable
        if synchronous is None or correct is None:
            seen = compare_outputs(fault, trace, tapes)
            synchronous = synchronous or (count if seen.against_synchronous else None)
            correct = correct or (count if seen.against_correct else None)
        elif detected is not None:
            break
    return Trial(
        fault=fault,
        number=number,
        traces_max=traces_max,
        judged=judged,
        reached=reached,
        triggered=triggered,
        steps=steps,
        seconds=seconds,
        plane=plane,
        variable=variable,
        detected=Found(at=detected),
        against_synchronous=Found(at=synchronous),
        against_correct=Found(at=correct),
    )


class Line(Value):
    """What all trials of one fault come to: medians over trials (Kaplan-Meier) with 95 % bounds, and totals.

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
    against_synchronous: int
    against_correct: int
    against_correct_traces: Median


def line_of(trials: Sequence[Trial]) -> Line:
    """Return the line of a fault from its trials."""
    found = [trial.detected.at is not None for trial in trials]

    def over(values: Sequence[float]) -> Median:
        return median([Time(at, happened) for at, happened in zip(values, found, strict=True)])

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
        against_synchronous=sum(trial.against_synchronous.at is not None for trial in trials),
        against_correct=sum(trial.against_correct.at is not None for trial in trials),
        against_correct_traces=median(correct),
    )


def table(lines: Sequence[Line]) -> list[str]:
    """Return the lines of a table for the terminal, and what they come to."""
    width = max(len(line.fault) for line in lines)
    head = (
        f"{'fault':{width}}  found  traces to detection  steps  seconds  reached triggered  outputs: sync correct  by"
    )
    shown = [head]
    for line in lines:
        by = next(iter(line.planes), "")
        shown.append(
            f"{line.fault:{width}}  {line.detected:2}/{line.trials:2}  {_bounds(line.traces):19}  "
            f"{_number(line.steps.at):>5}  {_number(line.seconds.at, 2):>7}  "
            f"{_share(line.reached, line.judged):>7} {_share(line.triggered, line.judged):>9}  "
            f"{line.against_synchronous:10}/{line.trials:2}  {line.against_correct:3}/{line.trials:2}  {by}"
        )
    found = sum(line.detected == line.trials for line in lines)
    as_expected = sum(
        count for line in lines for by, count in line.planes.items() if by.split(":")[0] == line.expected_plane
    )
    total = sum(line.detected for line in lines)
    shown.append("")
    shown.append(
        f"found in every trial: {found} of {len(lines)} faults; in the expected plane: {as_expected} of {total}"
    )
    synchronous = sum(line.against_synchronous > 0 for line in lines)
    correct = sum(line.against_correct > 0 for line in lines)
    shown.append(
        f"found by outputs in any trial: {synchronous} against a synchronous run of the same code, "
        f"{correct} against correct code"
    )
    return shown


def _bounds(value: Median) -> str:
    return f"{_number(value.at):>5} [{_number(value.low)}, {_number(value.high)}]"


def _number(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "-"

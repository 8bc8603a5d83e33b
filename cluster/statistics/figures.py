"""Figures of a measurement of faults: survival curves and the kill matrix.

They need matplotlib (extra `figures`), which is imported only when a picture is drawn.
"""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.dispatch.inside import write_inside
from cluster.statistics.fault_table import Line
from cluster.statistics.survival import Time, curve
from workers.run.trials import Trial

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OUTPUTS = ("outputs: correct", "outputs: sync")
_INCHES_PER_FAULT = 0.22


def ways_of(trials: Sequence[Trial]) -> dict[str, list[Time]]:
    """Return, for each way of checking, how many traces each trial took to find its fault."""
    ways = {
        "every check": [(trial.detected.at, trial.traces_max) for trial in trials],
        "outputs against correct code": [(trial.against_correct.at, trial.traces_max) for trial in trials],
        "outputs against a synchronous run": [(trial.against_synchronous.at, trial.traces_max) for trial in trials],
    }
    return {
        name: [Time(at if at is not None else most, at is not None) for at, most in ends] for name, ends in ways.items()
    }


def draw_survival(trials: Sequence[Trial], path: Path) -> None:
    """Draw survival curves: the share of trials that have not found their fault yet.

    There is one curve for each way of checking.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415

    ways = ways_of(trials)
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    last = max(trial.traces_max for trial in trials)
    for (name, times), colour in zip(ways.items(), ("#1b6ca8", "#d1862f", "#8a8a8a"), strict=True):
        points = curve(times)
        at = [1, *(point.at for point in points), last]
        share = [1.0, *(point.survival for point in points), points[-1].survival if points else 1.0]
        axes.step(at, share, where="post", label=name, color=colour)
        low = [1.0, *(point.low for point in points), points[-1].low if points else 1.0]
        high = [1.0, *(point.high for point in points), points[-1].high if points else 1.0]
        axes.fill_between(at, low, high, step="post", alpha=0.18, color=colour, linewidth=0)
    axes.set_xscale("log")
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("random traces")
    axes.set_ylabel("share of trials not found yet")
    axes.set_title(f"{len({trial.fault for trial in trials})} faults, {len(trials)} trials, 95 % bounds", fontsize=10)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def draw_kill_matrix(lines: Sequence[Line], path: Path) -> None:
    """Draw the share of trials that found each fault (row) in each state category (column)."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    planes = sorted({plane for line in lines for plane in line.by_plane})
    columns = [*planes, *OUTPUTS]
    shares = [[share_found(line, column) for column in columns] for line in lines]
    figure = Figure(figsize=(3.2 + 0.55 * len(columns), 1.6 + _INCHES_PER_FAULT * len(lines)), layout="constrained")
    axes = figure.subplots()
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(len(columns)), columns, rotation=60, ha="right", fontsize=8)
    axes.set_yticks(range(len(lines)), [line.fault for line in lines], fontsize=7)
    for row, line in enumerate(lines):
        if line.expected_plane in planes:
            axes.plot(planes.index(line.expected_plane), row, marker="o", markersize=4, color="#c03a2b")
    axes.axvline(len(planes) - 0.5, color="#444444", linewidth=0.8)
    axes.set_title("share of trials found first in each plane (dot: expected), and by outputs alone", fontsize=9)
    _save(figure, path)


def _save(figure: "Figure", path: Path) -> None:
    """Write a picture with selectable text; the same values give the same bytes."""
    from matplotlib import rc_context  # noqa: PLC0415

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "specstorm"}):
        picture = BytesIO()
        is_svg = path.suffix == ".svg"
        figure.savefig(picture, format=path.suffix[1:], metadata={"Date": None} if is_svg else None)
    write_inside(path.parent, path.name, picture.getvalue())


def share_found(line: Line, column: str) -> float:
    """Return the share of trials whose fault a state category, or compared outputs, found."""
    match column:
        case "outputs: correct":
            return line.against_correct / line.trials
        case "outputs: sync":
            return line.against_synchronous / line.trials
        case plane:
            return line.by_plane[plane] / line.trials

"""Trials of faults on the report page: kill matrix and survival curves."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cluster.statistics.fault_table import Line, by_fault
from cluster.statistics.figures import OUTPUTS, share_found, ways_of
from cluster.statistics.survival import Point, curve
from workers.run.trials import Trial

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 720, 330, 52, 14, 14, 44
_SHADES = 5


@dataclass(frozen=True, slots=True)
class Kill:
    """Share of a fault's trials in which one state category, or the outputs, found it first.

    `is_expected` marks the expected plane.
    """

    share: float
    is_expected: bool

    @property
    def shade(self) -> int:
        """Return the shade of a cell: 0 for never found, 5 for always found."""
        return math.ceil(_SHADES * self.share)


@dataclass(frozen=True, slots=True)
class KillMatrix:
    """Shares of trials by fault (row) and by the state category that found it first (column).

    The last column is the outputs, if they were compared.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Line, tuple[Kill, ...]], ...]
    num_always: int


@dataclass(frozen=True, slots=True)
class Curve:
    """One survival curve: a stepped line, with the area of its confidence bounds.

    Both are SVG paths.
    """

    name: str
    line: str
    band: str
    left: float


@dataclass(frozen=True, slots=True)
class Chart:
    """Survival curves over the number of traces, on a logarithmic axis with ticks."""

    width: int
    height: int
    curves: tuple[Curve, ...]
    across: tuple[tuple[float, str], ...]
    upwards: tuple[tuple[float, str], ...]
    left: int = _LEFT
    right: int = _WIDTH - _RIGHT
    top: int = _TOP
    bottom: int = _HEIGHT - _BOTTOM


def kill_matrix(trials: Sequence[Trial]) -> KillMatrix:
    """Return the matrix of faults and state categories, from at least one trial."""
    lines = sorted(by_fault(trials), key=lambda line: line.fault)
    planes = sorted({plane for line in lines for plane in (*line.by_plane, line.expected_plane)})
    columns = (*planes, *(OUTPUTS if all(line.baseline for line in lines) else ()))
    rows = tuple(
        (line, tuple(Kill(share_found(line, column), column == line.expected_plane) for column in columns))
        for line in lines
    )
    return KillMatrix(columns, rows, sum(line.detected == line.trials for line in lines))


def survival_chart(trials: Sequence[Trial]) -> Chart:
    """Return the survival curves of all trials: by all checks, and by compared outputs."""
    last = max(2, *(trial.traces_max for trial in trials))
    ways = list(ways_of(trials).items())
    if not all(trial.baseline for trial in trials):
        del ways[1:]
    ticks = [mantissa * 10**power for power in range(7) for mantissa in (1, 2, 5) if mantissa * 10**power <= last]
    across = tuple((_x(tick, last), f"{tick:,}") for tick in ticks)
    upwards = tuple((_y(share / 4), f"{share * 25} %") for share in range(5))
    return Chart(_WIDTH, _HEIGHT, tuple(_curve(name, curve(times), last) for name, times in ways), across, upwards)


def _curve(name: str, points: Sequence[Point], last: int) -> Curve:
    line = _steps([(point.at, point.survival) for point in points], last)
    high = _steps([(point.at, point.high) for point in points], last)
    low = _steps([(point.at, point.low) for point in points], last)
    band = f"{_path(high)}L{_path(low[::-1])[1:]}Z"
    return Curve(name, _path(line), band, points[-1].survival if points else 1.0)


def _steps(shares: Sequence[tuple[float, float]], last: int) -> list[tuple[float, float]]:
    """Return the corners of a line that keeps its height up to the next point."""
    corners = [(_x(1, last), _y(1.0))]
    for at, share in shares:
        corners += [(_x(at, last), corners[-1][1]), (_x(at, last), _y(share))]
    return [*corners, (_x(last, last), corners[-1][1])]


def _path(corners: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in corners)


def _x(traces: float, last: int) -> float:
    return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * math.log(max(1.0, traces)) / math.log(last), 1)


def _y(share: float) -> float:
    return round(_TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - share), 1)

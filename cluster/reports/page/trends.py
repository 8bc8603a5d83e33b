"""Trends over several nights on the report page: rates, findings, faults and coverage."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from cluster.reports.page.campaign import Campaign
from cluster.reports.page.findings import Finding
from cluster.statistics.fault_table import by_fault

_WIDTH, _HEIGHT, _MARGIN = 240, 48, 6
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Night:
    """One night: its day, its campaign, and its campaign of regressions."""

    day: str
    campaign: Campaign
    regressions: Campaign | None

    @property
    def is_judged(self) -> bool:
        """Whether any trace was hunted; otherwise a finding not met means nothing."""
        return self.campaign.hunt is not None and self.campaign.hunt.tally.traces > 0

    @property
    def findings(self) -> dict[str, Finding]:
        """Return the night's findings by fingerprint.

        Findings of the regressions on the clean engine are included.
        """
        return {**(self.regressions.findings if self.regressions is not None else {}), **self.campaign.findings}


@dataclass(frozen=True, slots=True)
class Series:
    """One number over nights; None for a night without it.

    `line` is an SVG path with a break there.
    """

    name: str
    texts: tuple[str, ...]
    dots: tuple[tuple[float, float, str], ...]
    line: str


@dataclass(frozen=True, slots=True)
class Recurring:
    """One bug over nights: its count in each; None for a night that judged nothing.

    `first` and `last` are days.
    """

    finding: Finding
    counts: tuple[int | None, ...]
    first: str
    last: str

    @property
    def num_nights(self) -> int:
        """Return the number of nights that met the bug."""
        return sum(bool(count) for count in self.counts)

    @property
    def num_judged(self) -> int:
        """Return the number of nights that judged something."""
        return sum(count is not None for count in self.counts)


@dataclass(frozen=True, slots=True)
class Trends:
    """Values of several nights, in order, for the charts of the page.

    `missed` are faults that some trial did not find, with a text for each night.
    """

    days: tuple[str, ...]
    series: tuple[Series, ...]
    recurring: tuple[Recurring, ...]
    missed: tuple[tuple[str, tuple[str, ...]], ...]
    width: int = _WIDTH
    height: int = _HEIGHT


def nights_of(campaigns: Sequence[Campaign]) -> list[Night]:
    """Return the nights among campaigns, by start; a night has regressions or timed parts."""
    below = {each.folder.parent: each for each in campaigns if each.is_regressions}
    whole = {each.folder: each for each in campaigns if not each.is_regressions and each.hunt is not None}
    nights = [
        Night(campaign.begun[:10], campaign, below.get(folder))
        for folder, campaign in whole.items()
        if folder in below or campaign.parts
    ]
    return sorted(nights, key=lambda night: night.campaign.begun)


def trends_of(campaigns: Sequence[Campaign]) -> Trends | None:
    """Return the trends over the nights among campaigns; None for fewer than two."""
    nights = nights_of(campaigns)
    if len(nights) < 2:
        return None
    days = tuple(night.day for night in nights)
    series = [_series(name, [value(night) for night in nights], days, text) for name, value, text in _SERIES]
    found = tuple(each for each in series if each.dots)
    return Trends(days, found, tuple(_recurring(nights)), tuple(_missed_faults(nights)))


def _recurring(nights: Sequence[Night]) -> list[Recurring]:
    """Return the bugs of nights, the most recent ones first."""
    bugs: dict[str, Finding] = {bug: finding for night in nights for bug, finding in night.findings.items()}
    rows = []
    for bug, finding in bugs.items():
        # A stopped hunt may not have counted a finding.
        counts = tuple(_times(bug, night) for night in nights)
        met = [night.day for night, count in zip(nights, counts, strict=True) if count]
        rows.append(Recurring(finding, counts, met[0], met[-1]))
    return sorted(rows, key=lambda row: (row.last, row.first), reverse=True)


def _times(bug: str, night: Night) -> int | None:
    if bug in night.findings:
        return max(1, night.findings[bug].count)
    return 0 if night.is_judged else None


def _missed_faults(nights: Sequence[Night]) -> list[tuple[str, tuple[str, ...]]]:
    """Return the faults that some trial did not find, with each night's trial counts."""
    lines = [{line.fault: line for line in by_fault(night.campaign.trials)} for night in nights]
    faults = sorted({fault for each in lines for fault, line in each.items() if line.detected < line.trials})
    texts = {
        fault: tuple(f"{each[fault].detected}/{each[fault].trials}" if fault in each else "" for each in lines)
        for fault in faults
    }
    return list(texts.items())


def _detected(night: Night) -> float | None:
    trials = night.campaign.trials
    return sum(trial.detected.at is not None for trial in trials) / len(trials) if trials else None


def _found_again(night: Night) -> float | None:
    counts = night.regressions.regressions if night.regressions is not None else None
    return counts.found / counts.faulty if counts is not None and counts.faulty else None


def _probes(night: Night) -> float | None:
    campaign = night.campaign
    if not campaign.num_probed or not campaign.probes_counted:
        return None
    return 1 - len(campaign.probes_never_hit) / len(campaign.probes_counted)


def _rate(night: Night) -> float | None:
    # Without timed parts, a night has only its total time.
    return night.campaign.rates.get("traces a second") if night.campaign.parts else None


def _traces(night: Night) -> float | None:
    return night.campaign.hunt.tally.traces if night.campaign.hunt is not None else None


def _rate_text(value: float) -> str:
    return f"{value:.3g}"


def _count_text(value: float) -> str:
    return f"{value:,.0f}"


def _share_text(value: float) -> str:
    return f"{100 * value:.3g} %"


_SERIES: tuple[tuple[str, Callable[[Night], float | None], Callable[[float], str]], ...] = (
    ("traces a second", _rate, _rate_text),
    ("traces hunted", _traces, _count_text),
    ("findings", lambda night: float(len(night.findings)) if night.is_judged else None, _count_text),
    ("regressions whose faults were found again", _found_again, _share_text),
    ("trials that found their fault", _detected, _share_text),
    ("probes hit", _probes, _share_text),
    (
        "events, planes and policies covered together",
        lambda night: float(sum(runs > 0 for runs in night.campaign.coverage.values())),
        _count_text,
    ),
)


def _series(name: str, values: Sequence[float | None], days: Sequence[str], text: Callable[[float], str]) -> Series:
    """Return a number over nights as a line from 0 to its maximum."""
    most = max((value for value in values if value is not None), default=0) or 1
    step = (_WIDTH - 2 * _MARGIN) / (len(values) - 1)
    points: list[Point | None] = []
    for index, value in enumerate(values):
        y = None if value is None else _HEIGHT - _MARGIN - (_HEIGHT - 2 * _MARGIN) * value / most
        points.append(None if y is None else (round(_MARGIN + step * index, 1), round(y, 1)))
    texts = tuple("-" if value is None else text(value) for value in values)
    told = zip(points, days, texts, strict=True)
    dots = tuple((*point, f"{day}: {said}") for point, day, said in told if point is not None)
    return Series(name, texts, dots, _path(points))


def _path(points: Sequence[Point | None]) -> str:
    runs = (list(run) for is_point, run in groupby(points, lambda point: point is not None) if is_point)
    return "".join("M" + "L".join(f"{point[0]} {point[1]}" for point in run if point is not None) for run in runs)

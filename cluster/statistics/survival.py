"""Survival analysis: the Kaplan-Meier estimator and its median with confidence bounds.

Source: Kaplan and Meier, JASA 53 (1958); Greenwood's variance on the log(-log) scale for the confidence bounds, and
the interval of Brookmeyer and Crowley (Biometrics 38, 1982) for the median.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from scenarios.spec import Value

Z_95 = 1.959963984540054


class Time(NamedTuple):
    """End of one trial: the time, and whether the event happened (else the trial is censored)."""

    at: float
    happened: bool


class Point(NamedTuple):
    """Share of trials without the event after a time, with 95 % confidence bounds."""

    at: float
    survival: float
    low: float
    high: float


class Median(Value):
    """Time by which half of the trials have the event, with bounds.

    None if it was not observed.
    """

    at: float | None
    low: float | None
    high: float | None


def curve(times: Sequence[Time]) -> list[Point]:
    """Return the survival curve: one point for each time at which the event happened."""
    points: list[Point] = []
    survival, greenwood = 1.0, 0.0
    for at in sorted({time.at for time in times if time.happened}):
        at_risk = sum(time.at >= at for time in times)
        events = sum(time.happened and time.at == at for time in times)
        survival *= 1 - events / at_risk
        if events == at_risk:
            points.append(Point(at, 0.0, 0.0, points[-1].high if points else 1.0))
            break
        greenwood += events / (at_risk * (at_risk - events))
        spread = Z_95 * math.sqrt(greenwood) / abs(math.log(survival))
        points.append(Point(at, survival, survival ** math.exp(spread), survival ** math.exp(-spread)))
    return points


def median(times: Sequence[Time]) -> Median:
    """Return the median time to the event.

    Its bounds are the times at which the bounds of the curve pass one half, the lower one first.
    """
    points = curve(times)

    def first(below: Sequence[float]) -> float | None:
        return next((point.at for point, share in zip(points, below, strict=True) if share <= 0.5), None)

    return Median(
        at=first([point.survival for point in points]),
        low=first([point.low for point in points]),
        high=first([point.high for point in points]),
    )

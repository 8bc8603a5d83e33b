"""Pace of a campaign: estimate its remaining time from its rate so far."""

from itertools import pairwise
from typing import Annotated, TypeAlias

from pydantic import Field

from scenarios.spec import Value

UNITS_MIN = 8
SPREAD_MAX = 6.0
# The time so far is divided into this many parts, whose rates are compared.
_PARTS = 4
_SAMPLES_MAX = 256


# A finite number of seconds that can be displayed.
Seconds: TypeAlias = Annotated[float, Field(ge=-1e12, le=1e12)]


class RemainingTime(Value):
    """Remaining time of a campaign in seconds: minimum and maximum."""

    low: Seconds
    high: Seconds


class Pace:
    """Samples of a run's progress: time and units done.

    The first sample is the start of the run, with the units of earlier runs.
    """

    def __init__(self) -> None:
        self._samples: list[tuple[float, int]] = []

    def note(self, now: float, done: int) -> None:
        """Add a sample of the units done.

        If there are too many samples, some are dropped, but never the first.
        """
        assert not self._samples or self._samples[-1][0] <= now, "time goes on"
        if len(self._samples) > 1 and self._samples[-1][1] == done == self._samples[-2][1]:
            self._samples.pop()
        self._samples.append((now, done))
        if len(self._samples) > _SAMPLES_MAX:
            del self._samples[1:-1:2]

    def left(self, total: int | None) -> RemainingTime | None:
        """Return the remaining time at the slowest and at the fastest rate so far.

        None without a reliable estimate.

        There is none after a few units only, if a part made no progress, or if the rates differ too much.
        """
        if total is None or len(self._samples) < 2:
            return None
        (begin, kept), (now, done) = self._samples[0], self._samples[-1]
        if now <= begin or done - kept < min(UNITS_MIN, total - kept):
            return None
        seconds = (now - begin) / _PARTS
        units = [self._units_at(begin + part * seconds) for part in range(_PARTS)] + [float(done)]
        rates = [(after - before) / seconds for before, after in pairwise(units)]
        if min(rates) <= 0 or max(rates) > SPREAD_MAX * min(rates):
            return None
        return RemainingTime(low=(total - done) / max(rates), high=(total - done) / min(rates))

    def _units_at(self, moment: float) -> float:
        """Return the units done at a moment before the last sample, interpolated."""
        for (before, less), (after, more) in pairwise(self._samples):
            if before <= moment < after:
                return less + (more - less) * (moment - before) / (after - before)
        raise AssertionError(f"{moment} is not before the last moment")

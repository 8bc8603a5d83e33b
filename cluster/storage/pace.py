"""Pace of a campaign: the range of time that its rest takes, from the pace of its parts so far."""

from itertools import pairwise
from typing import Annotated, TypeAlias

from pydantic import Field

from scenarios.spec import Value

UNITS_MIN = 8
SPREAD_MAX = 6.0
# Parts of the time so far whose paces are compared, with that of all of it.
_PARTS = 4
_SAMPLES_MAX = 256


# A time that can be shown; NaN and infinity are none.
Seconds: TypeAlias = Annotated[float, Field(ge=-1e12, le=1e12)]


class Left(Value):
    """The least and the most seconds that the rest takes."""

    low: Seconds
    high: Seconds


class Pace:
    """Units done at moments of a run; the first moment is its beginning, with what was kept from an earlier run."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, int]] = []

    def note(self, now: float, done: int) -> None:
        """Note how many units are done; of many moments only some are kept, the first among them."""
        assert not self._samples or self._samples[-1][0] <= now, "time goes on"
        if len(self._samples) > 1 and self._samples[-1][1] == done == self._samples[-2][1]:
            self._samples.pop()
        self._samples.append((now, done))
        if len(self._samples) > _SAMPLES_MAX:
            del self._samples[1:-1:2]

    def left(self, total: int | None) -> Left | None:
        """Return the time of the rest by the slowest and the fastest pace; None where that says nothing.

        It says nothing of a few units, where a part stood still, or where paces are too far apart.
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
        return Left(low=(total - done) / max(rates), high=(total - done) / min(rates))

    def _units_at(self, moment: float) -> float:
        """Return the units done at a moment before the last one noted, between those of its neighbours."""
        for (before, less), (after, more) in pairwise(self._samples):
            if before <= moment < after:
                return less + (more - less) * (moment - before) / (after - before)
        raise AssertionError(f"{moment} is not before the last moment")

"""Time budget of a campaign, divided among its parts.

The time that a part leaves goes to the next one.
"""

import time
from collections.abc import Callable


class Budget:
    """Time budget in seconds, counted from its creation; None means no limit.

    The clock is `time.monotonic` outside tests.
    """

    def __init__(self, seconds: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        assert seconds is None or seconds > 0, f"a budget of {seconds} s; pass None for no bound"
        self.seconds = seconds
        self._clock = clock
        self._begin = clock()

    def left(self, share: float = 1.0) -> float | None:
        """Return the seconds until a share of the budget has passed; None without a limit."""
        return None if self.seconds is None else self._begin + share * self.seconds - self._clock()

    def has_time(self, share: float = 1.0) -> bool:
        """Return whether time is left of a share of the budget."""
        left = self.left(share)
        return left is None or left > 0


def duration_text(seconds: float) -> str:
    """Return a duration in the largest unit that fits it: 40 s, 12 min, 7.5 h."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"

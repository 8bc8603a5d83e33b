"""Time small calls in turns, so that other load on the machine affects all calls alike."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

Call = Callable[[], object]
CALLS_PER_TURN = 20


def call_times_us(calls: Mapping[str, Call], turns: int, between: Call = lambda: None) -> dict[str, list[float]]:
    """Return the microseconds of each call, in turns; `between` runs untimed before each."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(turns):
        for name, call in calls.items():
            for _ in range(CALLS_PER_TURN):
                between()
                start = time.perf_counter_ns()
                call()
                times[name].append((time.perf_counter_ns() - start) / 1000)
    return times


def turn_times_us(calls: Mapping[str, Call], turns: int, finish: Call) -> dict[str, list[float]]:
    """Return the microseconds per call of each turn of 20 calls, including `finish`."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(turns):
        for name, call in calls.items():
            finish()
            start = time.perf_counter_ns()
            for _ in range(CALLS_PER_TURN):
                call()
            finish()
            times[name].append((time.perf_counter_ns() - start) / 1000 / CALLS_PER_TURN)
    return times


def percentile(times: Sequence[float], percent: int) -> float:
    """Return the smallest time that at least `percent` per cent of all times do not exceed."""
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, -(-len(ordered) * percent // 100) - 1)]


def ratio(of: Sequence[float], to: Sequence[float]) -> float:
    """Return the median of the ratios of times measured in the same turn."""
    return statistics.median(one / other for one, other in zip(of, to, strict=True))

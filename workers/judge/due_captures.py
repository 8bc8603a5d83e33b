"""Which captures and observations a log makes due, in which order, each exactly once.

Verifies: that each is shown, when it is due, under its point, step and requests; that nothing else is shown.
Does not verify: values (`checker` does).
"""

from collections import deque
from collections.abc import Set
from typing import TypeAlias

from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec
from workers.oracle.derived import keeps_states_with_blocks
from workers.oracle.truth import StepTruth
from workers.record.log import Corrected, Entry, Freed, Launched, Processed, Scheduled
from workers.record.observation import POINTS, Observation

# A point, a step, and the requests of its rows; of an observation of the host the requests follow from its entry.
Due: TypeAlias = tuple[str, int, tuple[int, ...]]
# Drafters that have more to show than their cache and their drafts.
SHOWS_MORE = ("draft_model", "mtp")


class DueCaptures:
    """Captures and observations that are due and were not shown yet.

    `points` are those at which an engine shows anything at all: nothing is due at any other, and none may be shown.
    """

    def __init__(self, spec: EngineSpec, points: Set[str] = POINTS) -> None:
        self._spec = spec
        self._points = points
        self._tick = 0
        self._on_device: deque[Due] = deque()
        self._on_host: tuple[str, int] | None = None
        after_sampling = (*(("kept",) if keeps_states_with_blocks(spec) else ()),)
        after_sampling += ("drafted",) if spec.drafter in SHOWS_MORE else ()
        self._certain = self._shown("inputs", "sampled", *after_sampling, "state")
        self._drawn = self._shown("inputs", "sampling", "sampled", *after_sampling, "state")

    def _shown(self, *points: str) -> tuple[str, ...]:
        return tuple(point for point in points if point in self._points)

    def before(self, entry: Entry) -> str | None:
        """Return which observation is due before an entry of the log, or None."""
        due = self._on_host
        # What a step ends gives its blocks back before the step's results are shown.
        if due is None or (due[0] == "processed" and isinstance(entry, Freed)):
            return None
        return f"observation {due[0]} of step {due[1]}"

    def after(self, entry: Entry, step: StepTruth | None) -> None:
        """Note what an entry makes due; `step` is what the oracle knows of the step it is about."""
        match entry:
            case Scheduled():
                self._owe("scheduled", entry.step)
            case Launched():
                if entry.order and step is not None:
                    self._owe("launched", entry.step)
                    points = self._drawn if draws_tokens(step, self._spec) else self._certain
                    self._on_device.extend([(point, entry.step, entry.order) for point in points])
            case Corrected():
                if step is not None and step.rows:
                    self._owe("corrected", entry.step)
            case Processed():
                self._owe("processed", entry.step)
            case Freed():
                if "freed" in self._points:
                    self._on_device.append(("freed", self._tick, (entry.request,)))
                return
            case _:
                pass
        self._tick = getattr(entry, "tick", self._tick)

    def _owe(self, point: str, step: int) -> None:
        assert self._on_host is None, f"observation {self._on_host} is due before {point}"
        if point in self._points:
            self._on_host = point, step

    def observed(self, observation: Observation) -> str | None:
        """Take an observation of the host off; return what is due instead of it, or None."""
        due = self._on_host
        if due is None or observation[:2] != due:
            return f"observation {due[0]} of step {due[1]}" if due is not None else "no observation"
        self._on_host = None
        return None

    def captured(self, capture: Observation) -> str | None:
        """Take a capture of the device off; return what is due instead of it, or None."""
        if not self._on_device or capture[:3] != self._on_device[0]:
            return self.next_capture() or "no capture"
        self._on_device.popleft()
        return None

    def next_capture(self) -> str | None:
        """Say which capture is due next, or None."""
        if not self._on_device:
            return None
        point, step, requests = self._on_device[0]
        return f"capture {point} of step {step}, requests {requests}"

    def left_over(self) -> str | None:
        """Say what is due once nothing is left to do, or None."""
        if self._on_host is not None:
            return f"observation {self._on_host[0]} of step {self._on_host[1]}"
        return self.next_capture()

    @property
    def captured_until(self) -> int | None:
        """The step of the next capture, below which every step was captured to its end; None if no capture is due."""
        return self._on_device[0][1] if self._on_device else None


def draws_tokens(step: StepTruth, spec: EngineSpec) -> bool:
    """Tell whether a step samples by chance: for some row that samples, or for all by synthetic rates."""
    return spec.sampling == "synthetic" or any(not row.discard and _is_drawn(row.truth.params) for row in step.rows)


def _is_drawn(params: SamplingParams) -> bool:
    return params.temperature > 0

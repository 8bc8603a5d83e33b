"""Check that an engine reports each required capture and observation, in order and once.

A *capture* is a copy of device variables, an *observation* one of host variables.

Verifies:
- each required observation of the host comes after its log entry and before the next one, with its point and step;
- each required capture of the device comes in the order of the compute lane, with its point, step and requests;
- nothing else is shown.

Does not verify: values (`checker` does).
"""

from collections import deque
from collections.abc import Mapping, Set
from typing import TypeAlias

from scenarios.drafters import TRAITS
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.oracle.derived import keeps_states_with_blocks
from workers.oracle.truth import StepTruth
from workers.record.evidence import Fact, fact
from workers.record.log import (
    Aborted,
    CacheReset,
    Corrected,
    Entry,
    Freed,
    Launched,
    Preempted,
    Processed,
    Scheduled,
    Submitted,
)
from workers.record.observation import POINTS, Observation

# A required capture of the device: its point, its step, and the requests in its rows.
Required: TypeAlias = tuple[str, int, tuple[int, ...]]


class RequiredCaptures:
    """Captures and host observations that the engine must still report.

    `points` are the observation points that the engine supports: nothing is required or allowed at any other point.
    `on_host` is the point and the step of the observation that the host must show next, or None.
    """

    def __init__(self, trace: Trace, points: Set[str] = POINTS) -> None:
        spec = self._spec = trace.spec
        draws = [submit for submit in trace.submits() if submit.params.temperature]
        self._may_draw = spec.sampling == "synthetic" or bool(draws)
        self._points = points
        self._tick = 0
        self._on_device: deque[Required] = deque()
        self.on_host: tuple[str, int] | None = None
        drafter = TRAITS[spec.drafter]
        after_sampling: tuple[str, ...] = ("kept",) if keeps_states_with_blocks(spec) else ()
        after_sampling += ("drafted",) if drafter.has_model or drafter.carries_hidden_state else ()
        self._certain = self._observed_among("inputs", "sampled", *after_sampling, "state")
        self._drawn = self._observed_among("inputs", "sampling", "sampled", *after_sampling, "state")

    def _observed_among(self, *points: str) -> tuple[str, ...]:
        return tuple(point for point in points if point in self._points)

    def before(self, entry: Entry) -> Fact | None:
        """Return the observation that must precede a log entry and is missing, or None."""
        due = self.on_host
        # Requests that a step ends free their blocks before the step's results are shown.
        if due is not None and due[0] == "processed" and isinstance(entry, Freed):
            return None
        return self.next_observation()

    def after(self, entry: Entry, steps: Mapping[int, StepTruth]) -> None:
        """Require the captures and host observations that must follow a log entry.

        `steps` are the oracle's expected steps.
        """
        match entry:
            case Launched(step=step, order=order):
                if order:
                    self._expect("launched", step)
                    if steps[step].poisoned and "poisoned" in self._points:
                        self._on_device.append(("poisoned", step, order))
                    is_drawn = self._may_draw and draws_tokens(steps[step], self._spec)
                    for point in self._drawn if is_drawn else self._certain:
                        self._on_device.append((point, step, order))
            case Corrected(step=step):
                if steps[step].rows:
                    self._expect("corrected", step)
            case Processed(step=step):
                self._expect("processed", step)
            case Scheduled(step=step, tick=tick):
                self._tick = tick
                self._expect("scheduled", step)
            case Freed(request=request):
                if "freed" in self._points:
                    self._on_device.append(("freed", self._tick, (request,)))
            case Submitted(tick=tick) | Aborted(tick=tick) | Preempted(tick=tick) | CacheReset(tick=tick):
                self._tick = tick

    def _expect(self, point: str, step: int) -> None:
        assert self.on_host is None, f"observation {self.on_host} must come before {point}"
        if point in self._points:
            self.on_host = point, step

    def observed(self, observation: Observation) -> Fact | None:
        """Accept a host observation; return the required one if it is another."""
        if observation[:2] != self.on_host:
            return self.next_observation() or fact("no_observation")
        self.on_host = None
        return None

    def captured(self, capture: Observation) -> Fact | None:
        """Accept a device capture if it is the required one; otherwise return the required one."""
        if not self._on_device or capture[:3] != self._on_device[0]:
            return self.next_capture() or fact("no_capture")
        self._on_device.popleft()
        return None

    def next_observation(self) -> Fact | None:
        """Return the observation that the host must report next, or None."""
        return None if self.on_host is None else fact("observation", point=self.on_host[0], step=self.on_host[1])

    def next_capture(self) -> Fact | None:
        """Return the capture that the device must report next, or None."""
        if not self._on_device:
            return None
        point, step, requests = self._on_device[0]
        return fact("capture", point=point, step=step, requests=requests)

    def left_over(self) -> tuple[str, Fact] | None:
        """Return the first capture or observation missing at the end, or None.

        It comes with its variable: `observations` or `captures`.
        """
        for which, due in (("observations", self.next_observation()), ("captures", self.next_capture())):
            if due is not None:
                return which, due
        return None

    @property
    def captured_until(self) -> int | None:
        """The first step with a missing capture; None if all are complete."""
        return self._on_device[0][1] if self._on_device else None


def draws_tokens(step: StepTruth, spec: EngineSpec) -> bool:
    """Return whether any row of a step samples at random (temperature, or synthetic acceptance).

    With synthetic acceptance rates every step does.
    """
    return spec.sampling == "synthetic" or any(row.truth.params.temperature and not row.discard for row in step.rows)

"""The judge reports each expected device or host record that is missing, repeated or in a wrong step.

Verifies: for each point of the device and of the host, that leaving out, repeating, relabelling or swapping what is
shown there is found; that a correction of the host's mirrors is owed, and an empty digest refused.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import pytest
from numpy.typing import NDArray

from scenarios.generation.strategies import random_trace
from scenarios.trace import Trace
from tests.workers.run.runs import difference_in, judged_by
from workers.engine.engine import Engine
from workers.engine.functions import EngineFunctions
from workers.engine.runner import ModelRunner
from workers.engine.step import Step
from workers.judge.checker import Checker
from workers.judge.judge import End
from workers.oracle.model_values import ModelValueCache
from workers.record.evidence import Difference, Fact, Violation, fact
from workers.record.log import Corrected, Entry
from workers.record.observation import DEVICE_POINTS, HOST_POINTS, Observation, Recorder
from workers.record.rules import Rule
from workers.run.engine_run import Options, Run
from workers.targets.specstorm import Specstorm, specstorm_target

VALUE_CACHE = ModelValueCache()
SEEDS = range(120)
PLACES_PER_CHANGE = 4
ON_HOST = sorted(HOST_POINTS - {"drained"})
Item = Entry | Observation


class Stream(NamedTuple):
    """The records that the checker received, of host and device, each with its call number."""

    host: list[tuple[int, Item]]
    device: list[tuple[int, Observation]]


class Listening(Checker):
    """Checker that stores the records that it receives."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace, VALUE_CACHE)
        self.stream = Stream([], [])
        self.num_calls = 0
        self.end: End | None = None

    def see_log(self, log: Sequence[Item]) -> Difference | None:
        self.stream.host.extend((self.num_calls, item) for item in log)
        return super().see_log(log)

    def see_captures(self, captures: Sequence[Observation]) -> Difference | None:
        self.stream.device.extend((self.num_calls, item) for item in captures)
        self.num_calls += 1
        return super().see_captures(captures)

    def at_end(self, end: End) -> Difference | None:
        self.end = end
        return super().at_end(end)


@cache
def clean_run(seed: int) -> tuple[Trace, Listening]:
    run = Run(random_trace(seed).explicit(), VALUE_CACHE, Options(races=False), Specstorm(EngineFunctions()))
    checker = Listening(run.trace)
    assert judged_by(run, checker).to_end() is None
    return run.trace, checker


def judged(trace: Trace, heard: Listening, stream: Stream) -> Difference | None:
    """Return the difference that a new checker finds in these records, or None."""
    checker = Checker(trace, VALUE_CACHE)
    assert heard.end is not None
    for call in range(heard.num_calls):
        found = checker.see_log([item for number, item in stream.host if number == call])
        found = found or checker.see_captures([item for number, item in stream.device if number == call])
        if found is not None:
            return found
    return checker.at_end(heard.end)


Numbered = list[tuple[int, Any]]


def left_out(items: Numbered, at: int) -> Numbered:
    return items[:at] + items[at + 1 :]


def repeated(items: Numbered, at: int) -> Numbered:
    return items[: at + 1] + items[at:]


def of_the_next_step(items: Numbered, at: int) -> Numbered:
    call, item = items[at]
    return [*items[:at], (call, item._replace(step=item.step + 1)), *items[at + 1 :]]


def of_the_step_before(items: Numbered, at: int) -> Numbered:
    call, item = items[at]
    return [*items[:at], (call, item._replace(step=item.step - 1)), *items[at + 1 :]]


def of_another_request(items: Numbered, at: int) -> Numbered:
    call, item = items[at]
    others = (*item.requests[:-1], item.requests[-1] + 1) if item.requests else (0,)
    return [*items[:at], (call, item._replace(requests=others)), *items[at + 1 :]]


def of_an_unknown_point(items: Numbered, at: int) -> Numbered:
    call, item = items[at]
    return [*items[:at], (call, item._replace(point="nowhere")), *items[at + 1 :]]


def swapped_with_the_next(items: Numbered, at: int) -> Numbered:
    (call, item), (call_next, item_next) = items[at : at + 2]
    return [*items[:at], (call, item_next), (call_next, item), *items[at + 2 :]]


def without_a_value(items: Numbered, at: int) -> Numbered:
    call, item = items[at]
    values = dict([*item.values.items()][1:])
    return [*items[:at], (call, item._replace(values=values)), *items[at + 1 :]]


CHANGES = (
    left_out,
    repeated,
    of_the_next_step,
    of_the_step_before,
    of_another_request,
    of_an_unknown_point,
    swapped_with_the_next,
    without_a_value,
)


def places(point: str, is_on_device: bool) -> Iterator[tuple[int, int]]:
    """Yield a seed and a stream index: first, last and in between, few from each run."""
    for seed in SEEDS:
        stream: Sequence[tuple[int, Any]] = clean_run(seed)[1].stream[is_on_device]
        found = [at for at, (_, item) in enumerate(stream) if isinstance(item, Observation) and item.point == point]
        found = [at for at in found if at + 1 < len(stream)]
        if found:
            yield seed, found[seed % len(found)]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("point", [*sorted(DEVICE_POINTS), *ON_HOST])
def test_checker_missing_repeated_or_moved_record_is_reported(
    point: str, change: Callable[[Numbered, int], Numbered]
) -> None:
    num_found = 0
    for seed, at in places(point, point in DEVICE_POINTS):
        trace, heard = clean_run(seed)
        host, device = heard.stream
        changed = Stream(host, change(device, at)) if point in DEVICE_POINTS else Stream(change(host, at), device)
        found = judged(trace, heard, changed)
        assert found is not None, (seed, at)
        num_found += 1
        if num_found == PLACES_PER_CHANGE:
            return
    pytest.fail(f"only {num_found} places")


@pytest.mark.parametrize("seed", range(10))
def test_checker_accepts_records_of_clean_run(seed: int) -> None:
    trace, heard = clean_run(seed)
    assert judged(trace, heard, heard.stream) is None


@pytest.mark.parametrize("point", [*sorted(DEVICE_POINTS), *ON_HOST])
def test_checker_missing_last_record_is_reported(point: str) -> None:
    for seed in SEEDS:
        trace, heard = clean_run(seed)
        items: Numbered = [*heard.stream[point in DEVICE_POINTS]]
        last = max((at for at, (_, item) in enumerate(items) if getattr(item, "point", "") == point), default=None)
        if last is not None:
            changed = left_out(items, last)
            stream = (
                Stream(heard.stream.host, changed) if point in DEVICE_POINTS else Stream(changed, heard.stream.device)
            )
            found = judged(trace, heard, stream)
            assert found is not None
            assert found.variable in ("captures", "observations")
            return
    pytest.fail("no place")


def rule_of(found: Difference) -> Rule | None:
    """Return the violated rule of the log, or None."""
    return found.actual.rule if isinstance(found.actual, Violation) else None


class NeverCorrects(ModelRunner):
    """A model runner that skips the correction of the host's computed-token counts."""

    def _correct(self, step: Step) -> None:
        pass


def test_checker_uncorrected_host_mirrors_are_reported() -> None:
    for seed in SEEDS[:10]:
        run = Run(clean_run(seed)[0], VALUE_CACHE, Options(races=False), Specstorm(EngineFunctions()))
        specstorm_target(run.target).engine.runner.__class__ = NeverCorrects
        assert rule_of(difference_in(run)) in (Rule.LAUNCHED_UNCORRECTED, Rule.NEVER_CORRECTED)


def test_checker_missing_correction_is_reported() -> None:
    for seed in SEEDS[:10]:
        trace, heard = clean_run(seed)
        steps = [item.step for _, item in heard.stream.host if isinstance(item, Corrected)]
        for step in (steps[0], steps[-1]):
            host = [
                (call, item)
                for call, item in heard.stream.host
                if not (isinstance(item, Corrected) and item.step == step)
                and not (isinstance(item, Observation) and item[:2] == ("corrected", step))
            ]
            found = judged(trace, heard, Stream(host, heard.stream.device))
            assert found is not None
            assert rule_of(found) in (Rule.LAUNCHED_UNCORRECTED, Rule.NEVER_CORRECTED, Rule.CORRECTED_OUT_OF_TURN)


class Deaf(Recorder):
    """Recorder that leaves captures out of its hash."""

    def digest(self) -> str:
        return ""


def test_checker_empty_digest_is_reported() -> None:
    run = Run(clean_run(0)[0], VALUE_CACHE, Options(races=False), Specstorm(EngineFunctions()))
    specstorm_target(run.target).recorder.__class__ = Deaf
    found = difference_in(run)
    assert (found.variable, found.actual) == ("captures", fact("no_digest"))


class Forgetful(Recorder):
    """Recorder that drops all captures of one point."""

    point = ""

    def capture(
        self, point: str, step: int, requests: tuple[int, ...], names: Sequence[str], arrays: Sequence[NDArray[Any]]
    ) -> None:
        if point != self.point:
            super().capture(point, step, requests, names, arrays)


@pytest.mark.parametrize("point", sorted(DEVICE_POINTS))
def test_checker_point_without_captures_is_reported(point: str) -> None:
    seed = next(seed for seed, _ in places(point, is_on_device=True))
    run = Run(clean_run(seed)[0], VALUE_CACHE, Options(races=False), Specstorm(EngineFunctions()))
    specstorm_target(run.target).recorder.__class__ = type("Dropping", (Forgetful,), {"point": point})
    found = difference_in(run)
    assert found.variable == "captures"
    assert isinstance(found.expected, Fact)
    assert (found.expected.kind, found.expected.values["point"]) == ("capture", point)


class KeepsRequests(Engine):
    """Engine that does not drop the draft tokens of an ended request."""

    def drained(self) -> bool:
        is_drained = super().drained()
        if is_drained:
            next(iter(self.requests.values())).drafts = [1]
        return is_drained


def test_checker_state_of_ended_request_on_host_is_a_leak() -> None:
    run = Run(clean_run(0)[0], VALUE_CACHE, Options(races=False), Specstorm(EngineFunctions()))
    specstorm_target(run.target).engine.__class__ = KeepsRequests
    found = difference_in(run)
    assert (found.variable, found.plane) == ("leaks", "books")
    assert isinstance(found.actual, Fact)
    assert (found.actual.kind, found.actual.values["what"]) == ("held_too", "drafts")

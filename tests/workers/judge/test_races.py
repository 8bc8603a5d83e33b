"""Race detector: races, ordered accesses, and no false alarm on the clean engine."""

from typing import Annotated

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.events import Schedule
from scenarios.generation.strategies import random_trace
from tests.workers.lanes.ops import LANES, Copy, Fill, Stir, copy, device, fill, machine, pinned, stir
from tests.workers.lanes.programs import RANGES, Action, Program, actions, has_race, nearly_ordered
from workers.engine.functions import EngineFunctions
from workers.judge.races import RaceDetector
from workers.kernels.argument import ANY_NAME, Arguments, In, Memory, Out, arguments
from workers.lanes.lane import Span
from workers.lanes.policies import Eager, LaneOrder, Lazy, Policy, Random, lane_orders
from workers.lanes.simulated import SimulatedEvent as Event
from workers.oracle.model_values import ModelValueCache
from workers.record.words import missing_order_text
from workers.run.engine_run import Options, Run
from workers.targets.specstorm import Specstorm


class Scene:
    """A machine with race detector and two buffers; one-letter methods act on its lanes."""

    def __init__(self) -> None:
        self.detector = RaceDetector(LANES)
        self.machine = machine(watcher=self.detector)
        self.x, self.p = device(self.machine, "x"), pinned(self.machine, "p")
        self._scratch = {lane: device(self.machine, f"scratch {lane}", 8) for lane in LANES}

    def write(self, lane: str, span: Span | None = None) -> None:
        self.machine.lane(lane).launch(fill, Fill(span or self.x.all, 1))

    def read(self, lane: str, span: Span | None = None) -> None:
        span = span or self.x.all
        length = span.key[1] - span.key[0]
        self.machine.lane(lane).launch(copy, Copy(span, self._scratch[lane].span(0, length)))

    def change(self, lane: str) -> None:
        self.machine.lane(lane).launch(stir, Stir(self._scratch[lane].all, self.x.all, 1))

    def record(self, lane: str) -> Event:
        event = self.machine.event("event")
        event.record(self.machine.lane(lane))
        return event

    def order(self, first: str, second: str) -> None:
        self.machine.lane(second).wait(self.record(first))

    def host(self, mode: str, span: Span | None = None) -> None:
        with self.machine.host(span or self.p.all, mode):
            pass

    def race(self) -> str | None:
        return missing_order_text(self.detector.race) if self.detector.race else None


def test_race_unordered_read_after_write() -> None:
    scene = Scene()
    scene.machine.step = 3
    scene.write("a")
    scene.machine.step = 4
    scene.read("b")
    assert scene.race() == "nothing orders the write by a:fill@3 before the read by b:copy@4 (both use x)"
    assert scene.detector.race is not None
    assert (scene.detector.race.memory, scene.detector.race.second.step) == ("x", 4)


def test_race_unordered_write_after_read() -> None:
    scene = Scene()
    scene.read("a")
    scene.write("b")
    assert scene.race() == "nothing orders the read by a:copy@0 before the write by b:fill@0 (both use x)"


def test_race_unordered_write_after_write() -> None:
    scene = Scene()
    scene.write("a")
    scene.write("b")
    assert scene.race() == "nothing orders the write by a:fill@0 before the write by b:fill@0 (both use x)"


def test_no_race_between_two_reads() -> None:
    scene = Scene()
    scene.read("a")
    scene.read("b")
    assert scene.race() is None


def test_no_race_within_one_lane() -> None:
    scene = Scene()
    scene.write("a")
    scene.change("a")
    scene.read("a")
    scene.write("a")
    assert scene.race() is None


def test_race_needs_overlapping_ranges() -> None:
    scene = Scene()
    scene.write("a", scene.x.span(0, 2))
    scene.write("b", scene.x.span(2, 4))
    scene.read("c", scene.x.span(4, 4))
    assert scene.race() is None
    scene.read("a", scene.x.span(0, 3))
    assert scene.race() == "nothing orders the write by b:fill@0 before the read by a:copy@0 (both use x)"


def test_race_wide_write_with_every_narrow_access() -> None:
    for access in ("read", "write"):
        scene = Scene()
        getattr(scene, access)("a", scene.x.span(0, 1))
        getattr(scene, access)("b", scene.x.span(3, 4))
        scene.order("a", "c")
        scene.write("c", scene.x.span(0, 3))
        assert scene.race() is None
        scene.write("c")
        assert f"the {access} by b" in str(scene.race())


def test_race_narrow_write_does_not_replace_wide_write() -> None:
    scene = Scene()
    scene.write("a")
    scene.order("a", "b")
    scene.write("b", scene.x.span(0, 2))
    scene.order("b", "c")
    scene.read("c")
    assert scene.race() is None
    scene.read("d", scene.x.span(2, 4))
    assert scene.race() == "nothing orders the write by a:fill@0 before the read by d:copy@0 (both use x)"


def test_no_race_with_record_and_wait() -> None:
    scene = Scene()
    scene.write("a")
    scene.order("a", "b")
    scene.read("b")
    scene.order("b", "a")
    scene.write("a")
    assert scene.race() is None


def test_race_with_access_after_record() -> None:
    scene = Scene()
    event = scene.record("a")
    scene.write("a")
    scene.machine.lane("b").wait(event)
    scene.read("b")
    assert scene.race() is not None


def test_race_with_access_before_wait() -> None:
    scene = Scene()
    scene.write("a")
    event = scene.record("a")
    scene.read("b")
    scene.machine.lane("b").wait(event)
    assert scene.race() is not None


def test_wait_orders_after_newest_record_at_that_time() -> None:
    scene = Scene()
    event = scene.record("a")
    scene.machine.lane("b").wait(event)
    scene.write("a")
    event.record(scene.machine.lane("a"))
    scene.machine.lane("c").wait(event)
    scene.read("c")
    assert scene.race() is None
    scene.read("b")
    assert scene.race() is not None


def test_order_is_transitive_over_lanes_and_host() -> None:
    scene = Scene()
    scene.write("a")
    scene.order("a", "b")
    scene.order("b", "c")
    scene.read("c")
    scene.record("c").synchronize()
    scene.write("d")
    assert scene.race() is None


def test_race_read_after_ordered_write() -> None:
    scene = Scene()
    scene.read("a")
    scene.read("a")
    scene.order("a", "b")
    scene.write("b")
    assert scene.race() is None
    scene.read("a")
    assert scene.race() == "nothing orders the write by b:fill@0 before the read by a:copy@0 (both use x)"


def test_race_with_last_of_several_reads() -> None:
    scene = Scene()
    scene.read("a")
    event = scene.record("a")
    scene.machine.step = 2
    scene.read("a")
    scene.machine.lane("b").wait(event)
    scene.write("b")
    assert scene.race() == "nothing orders the read by a:copy@2 before the write by b:fill@2 (both use x)"


def test_race_write_with_every_reader() -> None:
    for waits, is_race in (("", True), ("a", True), ("ab", True), ("abc", False)):
        scene = Scene()
        for lane in "abc":
            scene.read(lane)
        for lane in waits:
            scene.order(lane, "d")
        scene.write("d")
        assert (scene.race() is not None) == is_race


def test_inout_access_reads_and_writes() -> None:
    for access in ("read", "write", "change"):
        before, after = Scene(), Scene()
        getattr(before, access)("a")
        before.change("b")
        after.change("a")
        getattr(after, access)("b")
        assert before.race() is not None
        assert after.race() is not None


def test_launch_is_ordered_after_host_accesses() -> None:
    scene = Scene()
    scene.host("w")
    scene.read("a", scene.p.all)
    scene.host("r")
    assert scene.race() is None


def test_race_host_write_during_copy_from_it() -> None:
    scene = Scene()
    scene.read("a", scene.p.all)
    scene.host("w")
    assert scene.race() == "nothing orders the read by a:copy@0 before the write by host:access@0 (both use p)"


def test_race_host_read_during_copy_to_it() -> None:
    scene = Scene()
    scene.write("a", scene.p.all)
    scene.host("r")
    assert scene.race() == "nothing orders the write by a:fill@0 before the read by host:access@0 (both use p)"


def test_no_race_host_access_outside_copied_range() -> None:
    scene = Scene()
    scene.write("a", scene.p.span(0, 2))
    scene.host("w", scene.p.span(2, 4))
    assert scene.race() is None


def test_synchronize_orders_host_only_up_to_record() -> None:
    scene = Scene()
    scene.write("a", scene.p.all)
    event = scene.record("a")
    event.synchronize()
    scene.host("w")
    scene.read("a", scene.p.all)
    scene.host("r")
    assert scene.race() is None
    event.synchronize()
    scene.host("w")
    assert scene.race() is not None


def test_race_is_found_after_device_has_finished() -> None:
    scene = Scene()
    scene.write("a")
    scene.machine.drain()
    scene.read("b")
    assert scene.race() is not None


def test_detector_keeps_first_race() -> None:
    scene = Scene()
    scene.write("a")
    scene.read("b")
    first = scene.race()
    scene.write("c")
    scene.host("w")
    assert scene.race() == first


def test_detector_ignores_memory_of_one_lane() -> None:
    scene = Scene()
    private = scene.machine.buffer("private", scene.x.all._writable.copy(), lane="a")
    scene.write("a", private.all)
    assert scene.detector.num_accesses == 0
    scene.write("a")
    assert scene.detector.num_accesses == 1


def test_detector_treats_whole_written_memory_as_one_range() -> None:
    scene = Scene()
    table = scene.machine.buffer("table", scene.x.all._writable.copy(), whole=True)
    scene.read("a", table.span(0, 1))
    scene.read("b", table.span(3, 4))
    assert scene.race() is None
    scene.order("a", "c")
    with pytest.raises(ValueError, match="op fill: table must be written as a whole"):
        scene.write("c", table.span(0, 2))
    scene.write("c", table.all)
    assert scene.race() == "nothing orders the read by b:copy@0 before the write by c:fill@0 (both use table)"


def test_detector_checks_two_parts_of_one_range_once() -> None:
    @arguments
    class Compare(Arguments):
        first: Annotated[Memory, In("int64", "length", of=(ANY_NAME,))]
        second: Annotated[Memory, In("int64", "length", of=(ANY_NAME,))]
        result: Annotated[Memory, Out("int64", "result_length", of=(ANY_NAME,))]

    def compare(a: Compare) -> None:
        a.result[:] = np.array_equal(a.first, a.second)

    scene = Scene()
    table = scene.machine.buffer("table", scene.x.all._writable.copy(), whole=True)
    scene.machine.lane("a").launch(compare, Compare(table.span(0, 2), table.span(2, 4), scene.x.all))
    assert scene.detector.num_accesses == 2


def every_policy() -> list[Policy]:
    orders = lane_orders(("host", *LANES))
    return [Eager(), Lazy(), *map(LaneOrder, orders), *map(Random, range(4))]


@settings(max_examples=600)
@given(actions(8) | nearly_ordered())
def test_race_exactly_if_no_path_orders_conflicting_accesses(program: list[Action]) -> None:
    detector = RaceDetector(LANES)
    Program(Eager(), detector).run(program)
    step = next((step for step in range(len(program)) if has_race(program[: step + 1])), None)
    assert (detector.race.second.step if detector.race else None) == step


@settings(max_examples=400)
@given(st.lists(st.sampled_from(RANGES), max_size=6), st.sampled_from(RANGES), st.integers(0, 5))
def test_host_read_requires_newest_write_in_expected_step(
    written: list[tuple[int, int]], read: tuple[int, int], expected: int
) -> None:
    scene = Scene()
    for step, (low, high) in enumerate(written):
        scene.machine.step = step
        scene.host("w", scene.p.span(low, high))
    scene.machine.host(scene.p.span(*read), "r", expected).__enter__()
    over = [step for step, (low, high) in enumerate(written) if low < read[1] and read[0] < high]
    assert (scene.race() is None) == (not over or over[-1] == expected)


def test_no_race_with_empty_range() -> None:
    scene = Scene()
    for lane in "ab":
        scene.write(lane, scene.x.span(2, 2))
        scene.read(lane, scene.x.span(2, 2))
    scene.write("c")
    assert scene.race() is None


@settings(max_examples=80)
@given(actions(8) | nearly_ordered())
def test_reported_race_is_the_same_under_every_policy(program: list[Action]) -> None:
    races = set()
    for policy in every_policy():
        detector = RaceDetector(LANES)
        Program(policy, detector).run(program)
        races.add(detector.race)
    assert len(races) == 1


@settings(max_examples=200)
@given(actions(8) | nearly_ordered())
def test_program_without_race_has_same_result_under_every_policy(program: list[Action]) -> None:
    if has_race(program):
        return
    eager, *others = (Program(policy).run(program) for policy in every_policy())
    assert others
    assert others == [eager] * len(others)


def test_clean_engine_has_no_race() -> None:
    value_cache = ModelValueCache()
    judged = 0
    for seed in range(20):
        trace = random_trace(seed).model_copy(update={"schedule": Schedule()}).explicit()
        run = Run(trace, value_cache, Options(), Specstorm(EngineFunctions()))
        assert run.to_end() is None, seed
        assert run.detector is not None
        assert run.detector.race is None, f"seed {seed}: {run.detector.race}"
        judged += run.detector.num_accesses
    assert judged > 15_000

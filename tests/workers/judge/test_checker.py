"""Flip one bit of a running engine: it is reported inside a domain, and harmless outside.

Verifies: every line of `observation.VARIABLES` is compared in its domain, real values and padding; nothing else in
device memory matters once the state of a step was captured.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from scenarios.draw import below
from scenarios.events import AnyEvent, Preempt, ResetPrefixCache, Submit
from scenarios.generation.strategies import random_trace
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from tests.workers.judge.flips import Snapshots, cell_of, flip, hooked, layout_of, memory_of
from tests.workers.run.runs import difference_in, judged_by
from workers.engine.functions import EngineFunctions
from workers.engine.memory import View
from workers.faults.fault import Fault
from workers.faults.registry import FAULTS
from workers.judge.checker import Checker
from workers.judge.host_columns import cached_difference
from workers.lanes.base import OpFailed
from workers.oracle.expected_captures import SCRATCH, row_and_position
from workers.oracle.model_values import ModelValueCache
from workers.oracle.prefix_cache import cached_blocks
from workers.record.evidence import Difference
from workers.record.log import Entry
from workers.record.observation import DEVICE_POINTS, HOST_POINTS, VARIABLES, Observation, Recorder
from workers.record.verdict import NotDrained
from workers.record.words import shown_text
from workers.run.check import check
from workers.run.engine_run import Options, Run
from workers.targets.specstorm import Specstorm, SpecstormTarget, specstorm_target

VALUE_CACHE = ModelValueCache()
SEEDS = range(60)
# Some variables exist in few specifications.
SEEDS_TO_FIND = range(300)
FLIPS_PER_VARIABLE = 5
FLIPS_PER_RUN = 25
PADDED = ("seq_lens", "positions", "slots", "input_ids")
# Blocks that are lost to a reset of the prefix cache belong to no request.
OF_NO_REQUEST = ("poisoned",)
DEVICE = [name for name, variable in VARIABLES.items() if variable.point in DEVICE_POINTS]
HOST = [name for name, variable in VARIABLES.items() if variable.point in HOST_POINTS and name != "leaks"]


class Place(NamedTuple):
    """A value inside its domain; `step` counts steps, captures or observations."""

    point: str
    step: int
    at: int
    request: str
    position: int | None


@cache
def trace_of(seed: int) -> Trace:
    return random_trace(seed).explicit()


@cache
def clean_run(seed: int) -> tuple[Snapshots, Run]:
    snapshots = Snapshots(trace_of(seed), VALUE_CACHE)
    run = judged_by(Run(trace_of(seed), VALUE_CACHE, Options(), Specstorm(EngineFunctions())), snapshots)
    assert run.to_end() is None
    return snapshots, run


def pick(places: list[Place], seed: int, label: str) -> list[Place]:
    return [places[below(len(places), seed, "flip", label, 0)]] if places else []


def device_places(snapshots: Snapshots, variable: str) -> list[Place]:
    point = VARIABLES[variable].point
    places = []
    for step in range(len(snapshots.releases)) if point == "freed" else snapshots.steps:
        for index, value in enumerate(layout_of(snapshots, point, step).get(variable, ())):
            if value is SCRATCH:
                continue
            whose = snapshots.releases[step] if point == "freed" else snapshots.steps[step].truth
            owner, position = row_and_position(variable, index, whose, snapshots.spec)
            nobody = "" if variable in OF_NO_REQUEST else "padding"
            places.append(Place(point, step, index, owner.truth.name if owner is not None else nobody, position))
    return places


def found_with_flip(trace: Trace, variable: str, place: Place, bit: int) -> Difference:
    """Flip a bit of device memory just before a capture, and flip it back right after."""
    cells: list[tuple[str, int]] = []

    def before(point: str, step: int, view: View | None, blocks: list[int]) -> None:
        if (point, step) == (place.point, place.step):
            cells.append(cell_of(variable, place.at, run, view, blocks))
            flip(specstorm_target(run.target).machine, *cells[0], bit)

    def after(point: str, step: int, view: View | None, blocks: list[int]) -> None:
        if (point, step) == (place.point, place.step):
            flip(specstorm_target(run.target).machine, *cells[0], bit)

    run = hooked(trace, VALUE_CACHE, before, after)
    found = difference_in(run)
    assert cells, "the place was reached"
    return found


@pytest.mark.parametrize("variable", DEVICE)
def test_checker_bit_flip_of_device_value_is_reported(variable: str) -> None:
    flips: Counter[bool] = Counter()
    for seed in SEEDS_TO_FIND:
        if flips[False] >= FLIPS_PER_VARIABLE:
            break
        places = device_places(clean_run(seed)[0], variable)
        padding = [place for place in places if place.request in ("padding", "")]
        real = [place for place in places if place.request not in ("padding", "")]
        for place in pick(real, seed, variable) + pick(padding, seed, variable):
            bit = below(64, seed, "bit", variable, place.at)
            found = found_with_flip(trace_of(seed), variable, place, bit)
            seen = (found.variable, found.plane, found.request, found.position)
            assert seen == (variable, VARIABLES[variable].plane, place.request, place.position), (seed, place, bit)
            assert place.point == "freed" or found.step == place.step
            flips[place.request in ("padding", "")] += 1
    assert flips[False] >= FLIPS_PER_VARIABLE
    assert variable in OF_NO_REQUEST or bool(flips[True]) == (variable in PADDED)


def flipped(value: Any, bit: int) -> Any:
    """Return a value of the host with one bit flipped, or None if it has no bits."""
    match value:
        case bool():
            return not value
        case int():
            return value ^ (1 << bit)
        # A token id, followed by its logprob.
        case (int(), float(), *_):
            return (value[0] ^ (1 << bit), *value[1:])
        case (int(), *_):
            return (*value[:-1], value[-1] ^ (1 << bit))
        case str():
            return chr(ord(value[0]) ^ 1) + value[1:]
        case _:
            return None


def host_places(snapshots: Snapshots, variable: str) -> list[Place]:
    places = []
    for number, observation in enumerate(snapshots.observations):
        values = observation.values.get(variable)
        if values is None:
            continue
        if isinstance(values, int) or (isinstance(values, tuple) and values):
            places.append(Place(observation.point, number, -1, "", None))
            continue
        for index, request in enumerate(() if isinstance(values, tuple) else observation.requests):
            is_defined = flipped(values[index], 0) is not None
            if variable == "backup":
                is_defined = observation.values["discard"][index]
            if variable in ("computed", "placeholders"):
                is_defined = observation.values["finish_reason"][index] is None
            if is_defined:
                places.append(Place(observation.point, number, index, snapshots.oracle.requests[request].name, None))
    return places


class Tampered(Checker):
    """Checker that gets observation number `place.step` with one bit flipped."""

    def __init__(self, trace: Trace, variable: str, place: Place, bit: int) -> None:
        super().__init__(trace, VALUE_CACHE)
        self._flip = (variable, place, bit)
        self._num_observed = 0

    def see_log(self, log: Sequence[Entry | Observation]) -> Difference | None:
        variable, place, bit = self._flip
        seen = [*log]
        for at, entry in enumerate(seen):
            if isinstance(entry, Observation):
                if self._num_observed == place.step:
                    values = dict(entry.values)
                    if place.at < 0:
                        values[variable] = flipped(values[variable], bit)
                    else:
                        values[variable] = list(values[variable])
                        values[variable][place.at] = flipped(values[variable][place.at], bit)
                    seen[at] = entry._replace(values=values)
                self._num_observed += 1
        return super().see_log(seen)


@pytest.mark.parametrize("variable", HOST)
def test_checker_bit_flip_of_host_value_is_reported(variable: str) -> None:
    flips = 0
    for seed in SEEDS_TO_FIND:
        if flips >= FLIPS_PER_VARIABLE:
            break
        for place in pick(host_places(clean_run(seed)[0], variable), seed, variable):
            bit = below(63, seed, "bit", variable, place.at)
            run = Run(trace_of(seed), VALUE_CACHE, Options(), Specstorm(EngineFunctions()))
            found = difference_in(judged_by(run, Tampered(run.trace, variable, place, bit)))
            seen = (found.variable, found.plane, found.request, found.position)
            assert seen == (variable, VARIABLES[variable].plane, place.request, None), (seed, place, bit)
            flips += 1
    assert flips >= FLIPS_PER_VARIABLE


def test_cached_difference_requires_one_hash_per_prefix() -> None:
    def first_difference(*shown: tuple[list[int], tuple[int, ...]]) -> tuple[int, str] | None:
        """Return the index and the expected text of the first difference of prefixes and hashes."""
        names, cache = {0: 0}, cached_blocks(2)
        for step, (cache.prefix_of, hashes) in enumerate(shown):
            values = {"block_references": (0, 0), "cached_hashes": hashes, "idle_blocks": ()}
            found = cached_difference(cache, names, Observation("scheduled", step, (), values))
            if found is not None:
                assert (found.variable, found.plane) == ("cached_hashes", "prefix")
                return step, shown_text(found.expected)
        return None

    assert first_difference(([0, 0], (0, 0)), ([1, 0], (7, 0)), ([1, 2], (7, 9)), ([2, 1], (9, 7))) is None
    assert first_difference(([1, 0], (7, 0)), ([1, 2], (7, 7))) == (1, "a hash of its own at 1")
    assert first_difference(([1, 0], (7, 0)), ([0, 2], (0, 7))) == (1, "a hash of its own at 1")
    assert first_difference(
        ([1, 2], (7, 0)),
    ) == (0, "a hash of its own at 1")
    assert first_difference(([1, 0], (7, 0)), ([1, 0], (8, 0))) == (1, "[7] at 0")
    assert first_difference(([1, 0], (7, 0)), ([0, 0], (7, 0))) == (1, "[0] at 0")


def test_block_hash_without_parent_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = "specstorm-forgotten-parent"
    monkeypatch.setitem(cast(dict[str, Fault], FAULTS), fault, replace(FAULTS[fault], requires=()))
    kinds: Counter[str] = Counter()
    for trace in map(random_trace, range(250)):
        if trace.spec.prefix_cache:
            verdict = check(trace.model_copy(update={"faults": (fault,)}).explicit(), VALUE_CACHE, Options(races=False))
            kinds[verdict.kind] += 1
    # The fault acts in half of the traces; in a few of these, the block with the wrong hash is never registered.
    assert kinds["diverged"] > 0.45 * kinds.total()
    assert kinds["agreed"] < 0.02 * kinds.total()
    assert kinds.keys() <= {"diverged", "agreed", "vacuous"}


class Leaking(SpecstormTarget):
    """Engine that loses one block or state slot at the end of a run."""

    pool = ""

    def left_over(self) -> Observation:
        getattr(self.engine.scheduler, self.pool).take(1)
        return super().left_over()


def test_checker_lost_block_or_state_slot_is_a_leak() -> None:
    for seed in range(FLIPS_PER_VARIABLE):
        run = Run(trace_of(seed), VALUE_CACHE, Options(), Specstorm(EngineFunctions()))
        specstorm_target(run.target).__class__ = type(
            "Losing", (Leaking,), {"pool": ("state_slots", "blocks")[seed % 2]}
        )
        found = difference_in(run)
        assert (found.variable, found.plane) == ("leaks", VARIABLES["leaks"].plane), seed


def test_bit_flips_cover_every_observed_variable() -> None:
    assert {*DEVICE, *HOST, "leaks"} == set(VARIABLES)


class Dead(NamedTuple):
    """A bit of memory that nothing reads after a step's state was captured."""

    step: int
    buffer: str
    at: int
    bit: int


def reads_unowned_counts(trace: Trace) -> bool:
    """Return whether the accepted count of a free state slot is used as an index."""
    return trace.spec.layers == "hybrid" and trace.spec.accepted_counts == "device"


def dead_bits(seed: int) -> list[Dead]:
    """Return bits of device memory outside every domain, by step and buffer."""
    snapshots, run = clean_run(seed)
    sizes = {name: len(words) for name, words in memory_of(specstorm_target(run.target).machine).items()}
    names, steps, found = sorted(sizes), list(snapshots.steps), []
    if reads_unowned_counts(run.trace):
        names.remove("slot_accepted")
    for flip_number in range(FLIPS_PER_RUN):
        name = names[below(len(names), seed, "dead", "buffer", flip_number)]
        step = steps[below(len(steps), seed, "dead", "step", flip_number)]
        live = snapshots.steps[step].live.get(name, set())
        dead = np.setdiff1d(np.arange(sizes[name]), list(live))
        if len(dead):
            index = int(dead[below(len(dead), seed, "dead", "index", flip_number)])
            found.append(Dead(step, name, index, below(64, seed, "dead", "bit", flip_number)))
    return found


def found_with_dead_bits(trace: Trace, bits: list[Dead]) -> Difference | NotDrained | OpFailed | None:
    reached: list[Dead] = []

    def after(point: str, step: int, view: View | None, blocks: list[int]) -> None:
        for dead in bits:
            if (point, step) == ("state", dead.step):
                flip(specstorm_target(run.target).machine, dead.buffer, dead.at, dead.bit)
                reached.append(dead)

    run = hooked(trace, VALUE_CACHE, after=after)
    run.detector = None
    try:
        found = run.to_end()
    except OpFailed as failed:
        return failed
    assert found is not None or len(reached) == len(bits)
    return found


def test_bit_flips_outside_every_domain_change_nothing() -> None:
    flips: Counter[str] = Counter()
    for seed in SEEDS:
        bits = dead_bits(seed)
        found = found_with_dead_bits(trace_of(seed), bits)
        if found is not None:
            guilty = [bit for bit in bits if found_with_dead_bits(trace_of(seed), [bit]) is not None]
            pytest.fail(f"seed {seed}: {guilty} are outside every domain, but: {found}")
        flips.update(bit.buffer for bit in bits)
    assert flips.total() >= 1000
    assert set(flips) == set(memory_of(specstorm_target(clean_run(0)[1].target).machine))


def test_free_state_slot_may_hold_any_accepted_count() -> None:
    # The highest slot is handed out first: the second request starts on slot 0.
    events = tuple(Submit(tick=tick, request=f"r{tick}", prompt=(1, 2), max_tokens=20) for tick in (0, 3))
    trace = Trace(spec=EngineSpec(max_num_seqs=2, num_speculative_tokens=2), events=events).explicit()
    for bit in (4, 40, 63):
        assert found_with_dead_bits(trace, [Dead(0, "slot_accepted", 0, bit)]) is None


class FlipsOutside(Recorder):
    """Recorder that flips one bit outside the domain of every captured variable."""

    def __init__(self, snapshots: Snapshots) -> None:
        super().__init__()
        self.flips: Counter[str] = Counter()
        self._snapshots = snapshots
        self._num_releases = 0

    def capture(
        self, point: str, step: int, requests: tuple[int, ...], names: Sequence[str], arrays: Sequence[NDArray[Any]]
    ) -> None:
        number = step
        if point == "freed":
            number, self._num_releases = self._num_releases, self._num_releases + 1
        layout = layout_of(self._snapshots, point, number)
        copies = []
        for name, array in zip(names, arrays, strict=True):
            inside = [at for at, value in enumerate(layout.get(name, ())) if value is not SCRATCH]
            outside = np.setdiff1d(np.arange(len(array)), inside)
            copy = array.copy()
            if len(outside):
                index = outside[below(len(outside), number, "outside", name, point == "freed")]
                copy[index : index + 1].view(np.uint8)[0] ^= 1
                self.flips[name] += 1
            copies.append(copy)
        super().capture(point, step, requests, names, copies)


def test_checker_ignores_captured_values_outside_domains() -> None:
    flips: Counter[str] = Counter()
    for seed in SEEDS:
        if clean_run(seed)[0].is_over:
            # An ambiguous token was sampled: nothing is expected after it.
            continue
        recorder = FlipsOutside(clean_run(seed)[0])
        run = hooked(trace_of(seed), VALUE_CACHE, recorder=recorder)
        assert run.to_end() is None, seed
        flips.update(recorder.flips)
    assert flips.total() >= 1000
    # Padding rows are outside the domain of most variables; a variable with a pad value is defined everywhere.
    assert set(DEVICE) - set(flips) == {*PADDED, *OF_NO_REQUEST}


def test_blocks_of_the_reset_before_that_are_not_poisoned_are_reported() -> None:
    reset = [ResetPrefixCache(tick=4, at="after_launch", running=running) for running in (False, True)]
    submit = Submit(tick=0, request="a", prompt=(0,), max_tokens=5, accept="010")
    events: tuple[AnyEvent, ...] = (submit, Preempt(tick=4, request="a", mode="drop"), *reset)
    trace = Trace(spec=EngineSpec(layers="attention", prefix_cache=True), events=events)
    forgetful = replace(EngineFunctions(), blocks_still_lost=lambda earlier, lost: list(lost))
    assert Run(trace, VALUE_CACHE, Options(), Specstorm(EngineFunctions())).to_end() is None
    found = difference_in(Run(trace, VALUE_CACHE, Options(), Specstorm(forgetful)))
    assert (found.variable, found.plane, found.request) == ("poisoned", "kv", "")

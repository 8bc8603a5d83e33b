"""Waits, records, synchronisations and ring slots: one eager run finds each missing one.

Verifies: what a clean run was seen to wait for is needed, or is listed here with the reason why it is not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest

from benchmarks.power.redundant_waits import REDUNDANT, Configuration, Wait
from benchmarks.power.redundant_waits import trace_of as trace_of_seed
from scenarios.events import LANES, Schedule
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.engine import memory
from workers.engine.counts import CountsInFlight, gather_counts
from workers.engine.functions import EngineFunctions
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Agreed, Crashed, Diverged
from workers.run.check import check
from workers.run.engine_run import Options, Run
from workers.targets.specstorm import Specstorm, specstorm_target

SEEDS = range(4)
SEEDS_SILENT = range(30)
SEEDS_SWEPT = range(100, 103)
# The end of a dummy step only matters if its staging slot is reused before any other wait.
SEEDS_DUMMY = range(78, 104)
CONFIGURATIONS: tuple[Configuration, ...] = ("device", "host")
SCHEDULES = (
    Schedule(policy="eager"),
    Schedule(policy="lazy"),
    Schedule(policy="lane_order", order=LANES),
    Schedule(policy="lane_order", order=LANES[::-1]),
    Schedule(policy="random", seed=5),
)
VALUE_CACHE = ModelValueCache()
PARTS = EngineFunctions()
trace_of = cache(trace_of_seed)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one eager run: whether a race was found, and whether everything agreed."""

    raced: bool
    agreed: bool


def outcome_of(run: Run) -> Outcome:
    """Run to the end; an op that crashes on wrong input also counts as a difference."""
    assert run.detector is not None
    try:
        found = run.to_end()
    except Exception:
        return Outcome(run.detector.race is not None, agreed=False)
    return Outcome(run.detector.race is not None, agreed=found is None)


def eager(
    seed: int,
    accepted_counts: Configuration,
    removed: frozenset[Wait] = frozenset(),
    functions: EngineFunctions = PARTS,
) -> Outcome:
    """Run a trace once, eagerly, without some waits."""
    return outcome_of(Run(trace_of(seed, accepted_counts), VALUE_CACHE, Options(without=removed), Specstorm(functions)))


@cache
def waits_of(seed: int, accepted_counts: Configuration) -> frozenset[Wait]:
    """Return all waits, records and synchronisations of a clean run."""
    run = Run(trace_of(seed, accepted_counts), VALUE_CACHE, Options(), Specstorm(PARTS))
    assert outcome_of(run) == Outcome(raced=False, agreed=True)
    return frozenset(specstorm_target(run.target).machine.seen_waits)


@cache
def seen_waits(accepted_counts: Configuration) -> frozenset[Wait]:
    """Return all waits, records and synchronisations of some correct runs without dummy steps."""
    seen = frozenset[Wait]().union(*(waits_of(seed, accepted_counts) for seed in SEEDS))
    return frozenset(wait for wait in seen if not is_of_dummy_step(wait))


def is_of_dummy_step(wait: Wait) -> bool:
    """Return whether a wait or record belongs to a dummy step.

    Not every trace with a dummy step needs it.
    """
    return wait[1].startswith("dummy_done")


def has_dummy_step(trace: Trace) -> bool:
    """Return whether a trace has a dummy step."""
    return any(event.do == "dummy_step" for event in trace.events)


@pytest.mark.parametrize("accepted_counts", CONFIGURATIONS)
def test_eager_run_reports_each_missing_wait_except_listed(accepted_counts: Configuration) -> None:
    unreported = set()
    for wait in seen_waits(accepted_counts):
        # Some copies are made only for some requests: two traces per wait are enough.
        seeds = [seed for seed in SEEDS if wait in waits_of(seed, accepted_counts)][:2]
        outcomes = [eager(seed, accepted_counts, frozenset({wait})) for seed in seeds]
        if not all(outcome.raced for outcome in outcomes):
            unreported.add(wait)
    assert len(seen_waits(accepted_counts)) > len(unreported) + 8
    assert unreported == REDUNDANT[accepted_counts]


@pytest.mark.parametrize("accepted_counts", CONFIGURATIONS)
def test_missing_wait_for_dummy_step_is_reported(
    accepted_counts: Configuration,
) -> None:
    outcomes: dict[Wait, list[Outcome]] = {}
    for seed in filter(lambda seed: has_dummy_step(trace_of(seed, accepted_counts)), SEEDS_DUMMY):
        for wait in filter(is_of_dummy_step, waits_of(seed, accepted_counts)):
            outcomes.setdefault(wait, []).append(eager(seed, accepted_counts, frozenset({wait})))
    assert {place for place, _ in outcomes} == {"host", "record"}
    for wait, seen in outcomes.items():
        assert any(outcome.raced for outcome in seen), wait
        assert all(outcome.raced or outcome.agreed for outcome in seen), wait


@pytest.mark.parametrize("accepted_counts", CONFIGURATIONS)
def test_verdict_names_missing_wait(accepted_counts: Configuration) -> None:
    needed = sorted(seen_waits(accepted_counts) - REDUNDANT[accepted_counts])
    assert needed
    for wait in needed:
        seed = next(seed for seed in SEEDS if wait in waits_of(seed, accepted_counts))
        verdict = check(trace_of(seed, accepted_counts), VALUE_CACHE, Options(without=frozenset({wait})))
        assert isinstance(verdict, Diverged | Crashed), wait
        if isinstance(verdict, Diverged):
            assert verdict.difference.plane == "races" or verdict.difference.missing_order, wait


@pytest.mark.parametrize("accepted_counts", [each for each in CONFIGURATIONS if REDUNDANT[each]])
def test_redundant_wait_is_not_needed_by_any_schedule(
    accepted_counts: Configuration,
) -> None:
    waits = REDUNDANT[accepted_counts]
    assert waits
    for wait in waits:
        removed = frozenset({wait})
        for seed in SEEDS_SILENT:
            assert eager(seed, accepted_counts, removed) == Outcome(raced=False, agreed=True), (wait, seed)
        for seed in SEEDS_SWEPT:
            for schedule in SCHEDULES:
                trace = trace_of(seed, accepted_counts).model_copy(update={"schedule": schedule})
                assert isinstance(check(trace, VALUE_CACHE, Options(without=removed)), Agreed), (wait, seed, schedule)


def test_no_wait_is_redundant_in_every_configuration() -> None:
    assert not frozenset.intersection(*REDUNDANT.values())


def test_both_host_waits_for_counts_are_needed() -> None:
    # One event, two calls: before rows are staged (host counts only), and before the mirrors are corrected.
    def gather_by_another_name(counts: CountsInFlight | None, *rest: Any) -> Sequence[int]:
        if counts is not None:
            event = counts.machine.event("counts_gathered")
            event.record_newest = counts.landed.record_newest
            counts = replace(counts, landed=event)
        return gather_counts(counts, *rest)

    functions = EngineFunctions(gather_counts=gather_by_another_name)
    for removed, seeds in ((("host", "counts_gathered"), SEEDS), (("host", "counts_done"), range(20))):
        outcomes = [eager(seed, "host", frozenset({removed}), functions) for seed in seeds]
        assert any(outcome.raced for outcome in outcomes), removed
    assert all(eager(seed, "host", functions=functions) == Outcome(raced=False, agreed=True) for seed in SEEDS)


def one_slot_fewer(monkeypatch: pytest.MonkeyPatch, short: str) -> None:
    """Make one ring of pinned buffers one slot shorter."""
    whole = memory.ring_size

    def ring_size(ring: str, spec: EngineSpec) -> int:
        return whole(ring, spec) - (ring == short)

    monkeypatch.setattr(memory, "ring_size", ring_size)


def test_one_staging_slot_fewer_is_a_race(monkeypatch: pytest.MonkeyPatch) -> None:
    one_slot_fewer(monkeypatch, "staging")
    assert all(eager(seed, "device").raced for seed in SEEDS)


def test_host_counts_before_staging_need_one_staging_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    # Counts come after the copies of the step before, unless that is a dummy step, which has no counts.
    one_slot_fewer(monkeypatch, "staging")
    plain = [seed for seed in SEEDS_SILENT if not has_dummy_step(trace_of(seed, "host"))]
    assert len(plain) >= len(SEEDS_SILENT) // 3
    assert all(eager(seed, "host") == Outcome(raced=False, agreed=True) for seed in plain)


@pytest.mark.parametrize("accepted_counts", CONFIGURATIONS)
@pytest.mark.parametrize("ring", ["output", "counts"])
def test_one_output_or_counts_slot_fewer_is_reported(
    ring: str, accepted_counts: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The slot's event is reused with the slot: the host waits for the later copy, and reads its values.
    one_slot_fewer(monkeypatch, ring)
    assert all(eager(seed, accepted_counts).raced for seed in SEEDS)
    wrong = [seed for seed in range(10) if not eager(seed, accepted_counts).agreed]
    assert len(wrong) >= 5
    trace = trace_of(wrong[0], accepted_counts)
    for schedule in SCHEDULES:
        assert isinstance(check(trace.model_copy(update={"schedule": schedule}), VALUE_CACHE), Diverged)


@pytest.mark.parametrize("accepted_counts", CONFIGURATIONS)
@pytest.mark.parametrize("ring", ["outputs", "counts"])
def test_slots_with_shared_memory_and_own_events_are_a_race(ring: str, accepted_counts: Configuration) -> None:
    for seed in SEEDS:
        run = Run(trace_of(seed, accepted_counts), VALUE_CACHE, Options(), Specstorm(PARTS))
        slots = getattr(specstorm_target(run.target).engine.runner.memory, ring)
        slots[1] = slots[0]
        assert outcome_of(run).raced, seed

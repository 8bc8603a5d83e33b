"""Each fault is found by random traces, where it was said it would be; and says so where it cannot happen."""

from functools import cache

import pytest

from scenarios.events import Schedule
from scenarios.strategies import random_trace
from scenarios.trace import Trace
from workers.check import Options, check
from workers.faults.registry import FAULTS
from workers.tape import Tapes
from workers.verdict import Agreed, Diverged, Vacuous

TAPES = Tapes()
SEEDS = range(200)
BACKUP, ACCEPTED = "vllm-38556-backup-token", "vllm-38556-accepted-counts"


@cache
def with_fault(fault: str, seed: int, policy: str) -> Trace:
    """Return a random trace that meets a fault's requirements, with the fault switched on."""
    trace = random_trace(seed).explicit()
    spec = trace.spec.model_copy(update=dict(FAULTS[fault].requires))
    schedule = Schedule.model_validate({"policy": policy})
    return trace.model_copy(update={"spec": spec, "schedule": schedule, "faults": (fault,)})


def planes_found(fault: str, policy: str, options: Options) -> dict[int, str]:
    """Return the plane of the first difference by seed; a trace that does not reach the fault agrees but for that."""
    found = {}
    for seed in SEEDS:
        verdict = check(with_fault(fault, seed, policy), TAPES, options)
        match verdict:
            case Diverged(difference=difference):
                found[seed] = difference.plane
            case Vacuous(missing=missing):
                assert missing == (f"fault {fault}: never reached",)
            case _:
                assert isinstance(verdict, Agreed), (seed, verdict)
    return found


@pytest.mark.parametrize("fault", FAULTS)
def test_random_traces_find_a_fault_in_its_plane(fault: str) -> None:
    found = planes_found(fault, "lazy", Options(races=False))
    assert list(found.values()).count(FAULTS[fault].plane) >= 10
    # Whatever the trace, the fault is seen where it starts, not in what follows from it.
    assert set(found.values()) == {FAULTS[fault].plane}


def test_backup_tokens_from_optimistic_lengths_are_found_whatever_the_schedule() -> None:
    eager, lazy = (planes_found(BACKUP, policy, Options()) for policy in ("eager", "lazy"))
    assert eager == lazy
    assert set(eager.values()) == {"inputs"}


def test_accepted_counts_moved_in_flight_are_a_race_before_they_are_a_difference() -> None:
    eager = planes_found(ACCEPTED, "eager", Options())
    only_races = {seed for seed, plane in eager.items() if plane == "races"}
    harmed_early = planes_found(ACCEPTED, "eager", Options(races=False))
    harmed_late = planes_found(ACCEPTED, "lazy", Options(races=False))
    assert only_races.isdisjoint(harmed_early), "an early device hides the harm"
    assert len(only_races & set(harmed_late)) >= 10, "a late device shows it"
    assert set(harmed_late) <= set(eager), "where there is no race there is no harm under any schedule"
    # A row that moves past the rows of the step before reads no moved count at all: wrong whatever the schedule.
    assert len(harmed_early) < len(only_races) / 10
    assert {*harmed_early.values(), *harmed_late.values()} == {"counts"}


@pytest.mark.parametrize(("key", "value"), [("depth", 1), ("accepted_counts", "device"), ("layers", "attention")])
def test_a_fault_that_cannot_happen_makes_a_trace_vacuous_and_says_what_it_requires(key: str, value: object) -> None:
    wanted = dict(FAULTS[ACCEPTED].requires)[key]
    for seed in range(10):
        trace = with_fault(ACCEPTED, seed, "lazy")
        spec = trace.spec.model_copy(update={key: value})
        verdict = check(trace.model_copy(update={"spec": spec}), TAPES)
        assert isinstance(verdict, Vacuous)
        assert verdict.missing == (f"fault {ACCEPTED} requires {key} = {wanted}, the trace has {value}",)


def test_a_fault_changes_one_part_of_one_engine_and_leaves_the_next_engine_sound() -> None:
    seed = next(iter(planes_found(BACKUP, "eager", Options(races=False))))
    trace = with_fault(BACKUP, seed, "eager")
    assert isinstance(check(trace, TAPES), Diverged)
    assert isinstance(check(trace.model_copy(update={"faults": ()}), TAPES), Agreed)

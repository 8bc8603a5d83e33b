"""Random traces find each fault in its declared plane; an impossible fault is vacuous."""

from collections.abc import Mapping
from functools import cache
from itertools import combinations

import pytest

from scenarios.events import Schedule
from scenarios.features import DEPTH_MAX, refusals
from scenarios.generation.strategies import random_trace
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from tests.workers.faults.seeds import FOUND_AT
from workers.engine.functions import EngineFunctions
from workers.faults.registry import FAULTS
from workers.oracle.model_values import ModelValueCache
from workers.record.evidence import Difference, fact
from workers.record.verdict import Agreed, Crashed, Diverged, Vacuous
from workers.run.check import check
from workers.run.engine_run import Options
from workers.targets.devices import CLEAN

VALUE_CACHE = ModelValueCache()
SEEDS = range(200)
# More traces for faults that few random traces reach: a batch of four with sampled tokens, an infinite logit among
# greedy rows only, or bad words at a draft token.
MORE_SEEDS = {
    "vllm-47066-padding-draws": range(500),
    "specstorm-infinite-logit": range(500),
    "vllm-52311-bad-words-shifted": range(500),
}
# Faults that an assertion of the engine, or the end of an array, meets now and then before anything is compared.
ASSERTED = {
    "vllm-33377-aborted-goes-on": "ended twice",
    "tpu-2469-padded-slot": "op mtp_pass",
    "gaudi-1431-folded-padding": "op mtp_pass",
    "1cat-625-another-sentinel": "op token_logprobs",
}
BACKUP, ACCEPTED = "vllm-38556-backup-token", "vllm-38556-accepted-counts"
ALSO = {
    # If every draft token in flight is accepted the count is right by luck; the missing token on the host shows it.
    "specstorm-depth-3": "inputs",
    # A draft model of a hybrid target keeps its recurrent states in the same slot, and is compared first.
    "tpu-2469-padded-slot": "drafts",
    "gaudi-1431-folded-padding": "drafts",
    # A slot that was reused has two owners; one that is still free is counted as free.
    "sglang-26941-dangling-slot": "books",
    # A request with too many tokens ends too early, and frees blocks that it still has.
    "1cat-625-another-sentinel": "books",
    "ascend-13470-no-noise": "books",
}
OTHERWISE: Mapping[str | int, str | int] = {
    1: 2,
    2: 1,
    3: 2,
    "host": "device",
    "device": "host",
    "hybrid": "attention",
    "raw": "processed",
    "attention": "hybrid",
    "align": "none",
    12: 0,
    4: 3,
    "standard": "strict",
    "block": "strict",
    "eagle": "dflash",
    "draft_model": "eagle",
    "probabilistic": "greedy",
    "mtp": "eagle",
    "dflash": "eagle",
    "extract_hidden_states": "eagle",
    "medusa": "eagle",
}


@cache
def drawn(seed: int) -> Trace:
    """Return the random trace of a seed."""
    return random_trace(seed).explicit()


@cache
def with_fault(fault: str, seed: int, policy: str) -> Trace:
    """Return a random trace that meets a fault's requirements, with the fault switched on.

    Keys of the specification that an engine refuses together with a requirement get their defaults.
    """
    trace, wanted = drawn(seed), dict(FAULTS[fault].requires)
    spec = trace.spec.model_copy(update=wanted)
    for key in ("last_match", "prefix_cache", "draft_sampling", "drafter", "drafter_max_len"):
        if refusals(spec, (fault,)) and key not in wanted:
            spec = spec.model_copy(update={key: EngineSpec.model_fields[key].default})
    assert not refusals(spec, (fault,)), (fault, seed)
    schedule = Schedule.model_validate({"policy": policy})
    return trace.model_copy(update={"spec": spec, "schedule": schedule, "faults": (fault,)})


def planes_found(fault: str, policy: str, options: Options, num_traces: int) -> dict[int, str]:
    """Return the plane of the first difference; a trace that misses the fault must agree."""
    found = {}
    for seed in SEEDS[:num_traces]:
        verdict = check(with_fault(fault, seed, policy), VALUE_CACHE, options)
        match verdict:
            case Diverged(difference=difference):
                found[seed] = difference.plane
            case Vacuous(missing=missing):
                assert missing == (fact("fault_not_reached", fault=fault),)
            case _:
                assert isinstance(verdict, Agreed), (seed, verdict)
    return found


@cache
def agrees_when_clean(seed: int, spec: EngineSpec, policy: str) -> bool:
    """Return whether the engine without faults agrees on a random trace with a specification."""
    sound = spec.model_copy(update={"depth": min(spec.depth, DEPTH_MAX)})
    schedule = Schedule.model_validate({"policy": policy})
    trace = drawn(seed).model_copy(update={"spec": sound, "schedule": schedule})
    return isinstance(check(trace, VALUE_CACHE), Agreed)


def watched(fault: str) -> tuple[str, Options]:
    """Return the run options to find a fault; races are off if a race would hide the harm."""
    return ("lazy", Options(races=False)) if fault == ACCEPTED else ("eager", Options())


@cache
def first_differences(fault: str) -> Mapping[int, Difference]:
    """Return five differences that random traces find, by seed; known seeds are tried first."""
    policy, options = watched(fault)
    found: dict[int, Difference] = {}
    for seed in dict.fromkeys((*FOUND_AT.get(fault, ()), *MORE_SEEDS.get(fault, SEEDS))):
        verdict = check(with_fault(fault, seed, policy), VALUE_CACHE, options)
        if isinstance(verdict, Diverged):
            found[seed] = verdict.difference
        elif isinstance(verdict, Crashed):
            assert ASSERTED.get(fault, "nowhere") in verdict.error, (seed, verdict)
        else:
            assert isinstance(verdict, Agreed | Vacuous), (seed, verdict)
        if len(found) == 5:
            break
    return found


def part_of(fault: str) -> str:
    """Return the name of the function that a fault replaces."""
    functions = FAULTS[fault].apply(CLEAN, lambda: None)
    (part,) = (
        name for name in EngineFunctions.__dataclass_fields__ if getattr(functions, name) is not getattr(CLEAN, name)
    )
    return part


@pytest.mark.parametrize("fault", FAULTS)
def test_random_traces_find_each_fault_in_its_plane(fault: str) -> None:
    found = first_differences(fault)
    planes = [difference.plane for difference in found.values()]
    assert len(planes) == 5
    assert FAULTS[fault].plane in planes
    assert sum(plane in (FAULTS[fault].plane, ALSO.get(fault)) for plane in planes) >= 0.8 * len(planes), planes
    policy, _ = watched(fault)
    for seed in found:
        assert agrees_when_clean(seed, with_fault(fault, seed, policy).spec, policy), seed


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if FAULTS[fault].requires])
def test_fault_with_an_unmet_requirement_is_vacuous(fault: str) -> None:
    trace = with_fault(fault, 0, "eager")
    assert FAULTS[fault].requires
    for key, wanted in FAULTS[fault].requires:
        other = not wanted if isinstance(wanted, bool) else OTHERWISE[wanted]
        spec = trace.spec.model_copy(update={key: other})
        verdict = check(trace.model_copy(update={"spec": spec}), VALUE_CACHE)
        assert isinstance(verdict, Vacuous)
        assert verdict.missing == (fact("fault_requires", fault=fault, key=key, wanted=wanted, seen=other),)


@pytest.mark.parametrize("fault", FAULTS)
def test_trace_that_never_reaches_its_fault_is_vacuous(fault: str) -> None:
    trace = with_fault(fault, 0, "eager")
    verdict = check(trace.model_copy(update={"events": ()}), VALUE_CACHE)
    assert isinstance(verdict, Vacuous)
    assert verdict.missing == (fact("fault_not_reached", fault=fault),)


def test_faults_of_one_part_have_different_signatures() -> None:
    pairs = [pair for pair in combinations(FAULTS, 2) if len({*map(part_of, pair)}) == 1]
    assert pairs
    for pair in pairs:
        found, also = (
            {seed: (d.variable, d.commit, d.actual) for seed, d in first_differences(fault).items()} for fault in pair
        )
        same = sum(found[seed] == also[seed] for seed in found.keys() & also.keys())
        assert same < 0.5 * len(found.keys() | also.keys()), pair


def test_wrong_backup_tokens_are_found_under_every_schedule() -> None:
    eager, lazy = (planes_found(BACKUP, policy, Options(), 30) for policy in ("eager", "lazy"))
    assert eager == lazy
    assert set(eager.values()) == {"inputs"}


def test_accepted_counts_moved_in_flight_are_a_race_first() -> None:
    eager = planes_found(ACCEPTED, "eager", Options(), 36)
    only_races = {seed for seed, plane in eager.items() if plane == "races"}
    harmed_early = planes_found(ACCEPTED, "eager", Options(races=False), 36)
    harmed_late = planes_found(ACCEPTED, "lazy", Options(races=False), 36)
    assert only_races.isdisjoint(harmed_early), "an early device hides the harm"
    assert len(only_races & set(harmed_late)) >= 4, "a late device shows it"
    assert set(harmed_late) <= set(eager), "where there is no race there is no harm under any schedule"
    # A row that moves past all previous rows reads no moved count: wrong under any schedule.
    assert len(harmed_early) < len(only_races) / 10
    assert {*harmed_early.values(), *harmed_late.values()} == {"counts"}


@pytest.mark.parametrize(("key", "value"), [("depth", 1), ("accepted_counts", "device"), ("layers", "attention")])
def test_impossible_fault_is_vacuous_and_names_its_requirement(key: str, value: object) -> None:
    wanted = dict(FAULTS[ACCEPTED].requires)[key]
    for seed in range(10):
        trace = with_fault(ACCEPTED, seed, "lazy")
        spec = trace.spec.model_copy(update={key: value})
        verdict = check(trace.model_copy(update={"spec": spec}), VALUE_CACHE)
        assert isinstance(verdict, Vacuous)
        assert verdict.missing == (fact("fault_requires", fault=ACCEPTED, key=key, wanted=wanted, seen=value),)


def test_fault_changes_one_part_of_one_engine_only() -> None:
    seed = next(iter(first_differences(BACKUP)))
    trace = with_fault(BACKUP, seed, "eager")
    assert isinstance(check(trace, VALUE_CACHE), Diverged)
    assert isinstance(check(trace.model_copy(update={"faults": ()}), VALUE_CACHE), Agreed)

"""Three steps in flight: correct unless a request is left out of a step."""

from collections import Counter

from scenarios.drafters import TRAITS
from scenarios.generation.strategies import random_trace
from scenarios.trace import Trace
from workers.oracle.model_values import ModelValueCache
from workers.record.evidence import fact, violation
from workers.record.rules import Rule
from workers.record.verdict import Agreed, Diverged, Lost, Vacuous
from workers.run.check import check

VALUE_CACHE = ModelValueCache()
FAULT = "specstorm-depth-3"
SEEDS = range(60)


def at_depth(seed: int, depth: int) -> Trace:
    trace = random_trace(seed).explicit()
    drafter = "eagle" if TRAITS[trace.spec.drafter].goes_through_host else trace.spec.drafter
    spec = trace.spec.model_copy(update={"depth": depth, "drafter": drafter})
    return trace.model_copy(update={"spec": spec, "faults": (FAULT,)})


def test_fault_depth_3_is_found_only_if_a_request_is_left_out() -> None:
    seen: Counter[tuple[str, bool]] = Counter()
    for seed in SEEDS:
        verdict = check(at_depth(seed, 3), VALUE_CACHE)
        assert not isinstance(verdict, Lost)
        has_gap = verdict.stats.probes.get("gap", 0) > 0
        seen[verdict.kind, has_gap] += 1
        if isinstance(verdict, Diverged):
            # If no draft token was rejected the count is right anyway, but the host does not know the last token, or by
            # how many tokens the state advances.
            assert verdict.difference.variable in ("num_computed", "input_ids", "accepted_read"), (seed, verdict)
        else:
            assert isinstance(verdict, Agreed | Vacuous), (seed, verdict)
    assert seen["diverged", True] >= 4
    assert seen["diverged", False] == 0
    assert seen["agreed", False] >= 35


def test_engine_without_fault_never_has_three_steps_in_flight() -> None:
    verdict = check(at_depth(0, 3).model_copy(update={"faults": ()}), VALUE_CACHE)
    assert isinstance(verdict, Diverged)
    broken = violation(Rule.PROCESSED_EARLY, step=0, count=2, depth=3)
    assert verdict.difference.actual == broken.model_copy(update={"entry": "processed"})


def test_fault_depth_3_changes_nothing_at_depths_1_and_2() -> None:
    for depth in (1, 2, 4):
        verdict = check(at_depth(0, depth), VALUE_CACHE)
        assert isinstance(verdict, Vacuous)
        assert verdict.missing == (fact("fault_requires", fault=FAULT, key="depth", wanted=3, seen=depth),)

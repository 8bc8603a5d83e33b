"""Combinations that are refused or have no effect say so, each with its reason."""

import pytest

from scenarios.events import Submit
from scenarios.features import REFUSED, SWITCHED_OFF, is_switched_off, refusals, switched_off
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.faults.registry import FAULTS

EVENTS = (Submit(tick=0, request="a", prompt=(1, 2, 3), max_tokens=4),)


def test_what_lifts_a_rule_is_a_fault_that_exists() -> None:
    lifting = [rule.lifted_by for rule in REFUSED] + [rule.lifted_by for rule in SWITCHED_OFF]
    assert len(lifting) >= 2
    assert {fault for fault in lifting if fault is not None} <= set(FAULTS)


def test_cascade_is_switched_off_at_depth_2_alone_and_its_warning_says_why() -> None:
    at_depth = {depth: EngineSpec(cascade=True, depth=depth) for depth in (1, 2)}
    assert not is_switched_off(at_depth[1], "cascade")
    assert is_switched_off(at_depth[2], "cascade")
    assert not is_switched_off(EngineSpec(), "cascade")
    (rule,) = switched_off(at_depth[2], ())
    assert rule.message(at_depth[2]) == (
        "cascade is True, but switched off at depth 2: the host counts drafts in flight as computed, so its common "
        "prefix may contain rejected tokens"
    )
    assert not switched_off(at_depth[2], ("vllm-32951-cascade-stays-on",))


def test_a_switch_without_effect_is_no_reason_to_refuse_a_trace() -> None:
    assert Trace(spec=EngineSpec(cascade=True, depth=2), events=EVENTS).spec.cascade


@pytest.mark.parametrize("depth", [3, 4])
def test_a_refused_depth_is_let_through_by_the_fault_that_shows_what_the_refusal_is_for(depth: int) -> None:
    spec = EngineSpec(depth=depth)
    assert [rule.key for rule in refusals(spec, ())] == ["depth"]
    with pytest.raises(ValueError, match="allowed are 1 and 2"):
        Trace(spec=spec, events=EVENTS)
    assert Trace(spec=spec, events=EVENTS, faults=("specstorm-depth-3",)).spec.depth == depth

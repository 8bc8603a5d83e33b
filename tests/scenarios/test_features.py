"""Refused feature combinations and ignored switches, such as cascade attention at depth 2, state their reason."""

import pytest

from scenarios.events import Submit
from scenarios.features import REFUSED, SWITCHED_OFF, is_switched_off, refusals, switched_off
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.faults.registry import FAULTS

EVENTS = (Submit(tick=0, request="a", prompt=(1, 2, 3), max_tokens=4),)


def test_rules_are_lifted_by_existing_faults() -> None:
    lifting = [rule.lifted_by for rule in REFUSED] + [rule.lifted_by for rule in SWITCHED_OFF]
    assert len(lifting) >= 2
    assert {fault for fault in lifting if fault is not None} <= set(FAULTS)


def test_cascade_is_switched_off_only_at_depth_2_with_reason() -> None:
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


def test_switched_off_feature_does_not_refuse_trace() -> None:
    assert Trace(spec=EngineSpec(cascade=True, depth=2), events=EVENTS).spec.cascade


@pytest.mark.parametrize("depth", [3, 4])
def test_fault_depth_3_allows_depth_3(depth: int) -> None:
    spec = EngineSpec(depth=depth)
    assert [rule.key for rule in refusals(spec, ())] == ["depth"]
    with pytest.raises(ValueError, match="allowed are 1 and 2"):
        Trace(spec=spec, events=EVENTS)
    assert Trace(spec=spec, events=EVENTS, faults=("specstorm-depth-3",)).spec.depth == depth

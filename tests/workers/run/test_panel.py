"""Panel: the judges that apply to a trace on an engine."""

import pytest

from scenarios.capabilities import Capabilities
from scenarios.spec import EngineSpec, Transfer
from scenarios.trace import Trace
from workers.judge.judge import Case
from workers.judge.kv_content import KVContent
from workers.oracle.model_values import ModelValueCache
from workers.run.panel import Panel
from workers.targets.registry import target_kind
from workers.targets.specstorm import Specstorm
from workers.targets.vllm.names import VLLM

VLLMS = target_kind(VLLM).capabilities


@pytest.mark.parametrize(
    ("spec", "capabilities", "is_asked"),
    [
        (EngineSpec(layers="attention", prefix_cache=True), VLLMS, True),
        (EngineSpec(layers="attention", transfer=Transfer()), VLLMS, True),
        (EngineSpec(layers="attention"), VLLMS, False),
        (EngineSpec(layers="hybrid", prefix_cache=True, recurrent_cache="align"), VLLMS, True),
        (EngineSpec(layers="windows", prefix_cache=True), VLLMS, False),
        (EngineSpec(layers="attention", prefix_cache=True), Specstorm.capabilities, False),
    ],
    ids=["prefix cache", "connector", "neither", "states", "windows", "an engine with an oracle"],
)
def test_kv_content_applies_if_blocks_may_be_shared(
    spec: EngineSpec, capabilities: Capabilities, is_asked: bool
) -> None:
    panel = Panel.of(Case(Trace(spec=spec, events=()), ModelValueCache(), capabilities, None))
    assert any(isinstance(judge, KVContent) for judge in panel.judges) is is_asked

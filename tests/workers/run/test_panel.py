"""Panel: the judges that apply to a trace on an engine."""

import pytest

from scenarios.capabilities import Capabilities
from scenarios.spec import EngineSpec, Transfer
from scenarios.trace import Trace
from workers.judge.admissions import Admissions
from workers.judge.contracts.judge import Contracts
from workers.judge.drafter_inputs import DrafterInputs
from workers.judge.judge import Case
from workers.judge.kv_content import KVContent
from workers.judge.model_inputs import ModelInputs
from workers.judge.prefix_hits import PrefixHits
from workers.judge.sampler_state import SamplerState
from workers.judge.scheduler_decisions import SchedulerDecisions
from workers.oracle.model_values import ModelValueCache
from workers.run.panel import Panel
from workers.targets.registry import target_kind
from workers.targets.specstorm import Specstorm
from workers.targets.target import Device, RunConfig
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


@pytest.mark.parametrize(("device", "ranks", "has_inputs"), [("cuda", 2, False), ("cuda", 1, True), ("sim", 2, True)])
def test_only_the_scheduler_is_judged_if_ranks_are_processes(device: Device, ranks: int, has_inputs: bool) -> None:
    spec = EngineSpec(layers="attention", sampling="standard", prefix_cache=True, tensor_ranks=ranks)
    capabilities = target_kind(VLLM).capabilities_under(RunConfig(engine=VLLM, device=device))
    judges = Panel.of(Case(Trace(spec=spec, events=()), ModelValueCache(), capabilities, None)).judges
    of_inputs = {ModelInputs, KVContent, SamplerState, DrafterInputs}
    assert of_inputs & {type(judge) for judge in judges} == (of_inputs if has_inputs else set())
    assert any(isinstance(judge, SchedulerDecisions) for judge in judges) is not has_inputs
    assert {PrefixHits, Contracts, Admissions} <= {type(judge) for judge in judges}

"""Limits of vLLM that differ between its runners, devices or models."""

import pytest

from scenarios.capabilities import Capabilities, lacking
from scenarios.drafters import Drafter
from scenarios.events import Submit
from scenarios.generation.catalogue import for_engine
from scenarios.generation.fitting import fitted_to
from scenarios.generation.strategies import random_trace
from scenarios.spec import EngineSpec, Handoff, Offloading, Transfer, Value
from scenarios.trace import Trace
from workers.run.references import synchronous
from workers.targets.registry import target_kind
from workers.targets.target import Device, RunConfig
from workers.targets.vllm.limits import SECOND_RUNNER, on_a_gpu
from workers.targets.vllm.names import VLLM, VLLM_V1
from workers.targets.vllm.target import VllmV1


@pytest.mark.parametrize("drafter", ["eagle", "ngram_gpu", "draft_model", "eagle3", "mtp", "dflash"])
@pytest.mark.parametrize("engine", [VLLM, VLLM_V1])
def test_hybrid_model_allows_only_drafters_without_own_kv_cache_groups(engine: str, drafter: Drafter) -> None:
    spec = EngineSpec(layers="hybrid", sampling="standard", block_size=32, drafter=drafter)
    trace = Trace(spec=spec, events=(Submit(tick=0, request="a", prompt=(1,), max_tokens=2),))
    capabilities = target_kind(engine).capabilities
    if drafter in ("eagle", "ngram_gpu"):
        assert lacking(trace, capabilities) is None
        return
    wanted = f"spec.drafter: {drafter}; allowed with layers hybrid are eagle, ngram_gpu, ngram: "
    assert str(lacking(trace, capabilities)).startswith(wanted)
    fixed = fitted_to(trace, capabilities).spec
    assert (fixed.layers, fixed.drafter) == ("attention", drafter)


def test_hybrid_model_on_a_cpu_allows_no_draft_tokens() -> None:
    trace = Trace(spec=EngineSpec(layers="hybrid", sampling="standard", block_size=32), events=())
    kind = target_kind(VLLM_V1)
    assert isinstance(kind, VllmV1)
    lacks = str(lacking(trace, kind.capabilities_under(RunConfig(engine=VLLM_V1, device="cpu"))))
    reason = "vLLM's CPU kernels cannot roll a recurrent state back to before a rejected draft"
    assert lacks == f"spec.num_speculative_tokens: 3; with layers hybrid 0 is allowed: {reason}"


def test_gated_delta_nets_need_the_simulated_device() -> None:
    spec = EngineSpec(layers="hybrid", recurrent_layers="gated_delta", sampling="standard", block_size=32)
    trace = Trace(spec=spec.model_copy(update={"num_speculative_tokens": 0}), events=())
    devices: tuple[tuple[Device, bool], ...] = (("sim", True), ("cuda", False), ("cpu", False))
    for device, has_nets in devices:
        lacks = lacking(trace, target_kind(VLLM_V1).capabilities_under(RunConfig(engine=VLLM_V1, device=device)))
        assert (lacks is None) is has_nets
        assert has_nets or str(lacks).startswith("spec.recurrent_layers: gated_delta")


@pytest.mark.parametrize("engine", [VLLM, VLLM_V1])
def test_recurrent_layers_needs_a_hybrid_model(engine: str) -> None:
    spec = EngineSpec(layers="attention", recurrent_layers="gated_delta", sampling="standard", block_size=32)
    trace, capabilities = Trace(spec=spec, events=()), target_kind(engine).capabilities
    wanted = "spec.recurrent_layers: gated_delta; with layers attention short_conv is allowed"
    assert lacking(trace, capabilities) == wanted
    assert fitted_to(trace, capabilities).spec.recurrent_layers == "short_conv"
    specs = [for_engine(random_trace(seed), capabilities).spec for seed in range(100)]
    of_hybrids = [each.recurrent_layers for each in specs if each.layers == "hybrid"]
    assert len(of_hybrids) // 4 < of_hybrids.count("gated_delta") < len(of_hybrids)


@pytest.mark.parametrize("engine", [VLLM, VLLM_V1])
def test_generated_traces_have_hybrid_models_with_drafters(engine: str) -> None:
    capabilities = target_kind(engine).capabilities
    specs = [for_engine(random_trace(seed), capabilities).spec for seed in range(100)]
    beside = [spec for spec in specs if spec.layers == "hybrid" and spec.num_speculative_tokens]
    assert {spec.drafter for spec in beside} == {"eagle", "ngram_gpu", "ngram"}
    assert {spec.is_aligned and spec.prefix_cache for spec in beside} == {False, True}


@pytest.mark.parametrize(("drafter", "budget", "allowed"), [("dflash", 6, 7), ("dflash", 7, 7), ("eagle", 6, 6)])
@pytest.mark.parametrize("engine", [VLLM, VLLM_V1])
def test_dflash_needs_a_token_budget_for_drafts_and_lookahead(
    engine: str, drafter: Drafter, budget: int, allowed: int
) -> None:
    spec = EngineSpec(
        layers="attention",
        sampling="standard",
        block_size=32,
        drafter=drafter,
        num_speculative_tokens=3,
        max_num_batched_tokens=budget,
    )
    trace = Trace(spec=spec, events=(Submit(tick=0, request="a", prompt=(1,), max_tokens=2),))
    capabilities = target_kind(engine).capabilities
    assert fitted_to(trace, capabilities).spec.max_num_batched_tokens == allowed
    assert (lacking(trace, capabilities) is None) is (budget == allowed)


@pytest.mark.parametrize("engine", [VLLM, VLLM_V1])
@pytest.mark.parametrize("beside", [{}, {"transfer": Transfer()}, {"offloading": Offloading()}, {"handoff": Handoff()}])
def test_cuda_graphs_exclude_a_kv_connector(engine: str, beside: dict[str, Value]) -> None:
    spec = EngineSpec(layers="attention", sampling="standard", block_size=32, graphs="piecewise", num_blocks=40)
    trace = Trace(spec=spec.model_copy(update=beside), events=(Submit(tick=0, request="a", prompt=(1,), max_tokens=2),))
    capabilities = target_kind(engine).capabilities
    if not beside:
        assert lacking(trace, capabilities) is None
        return
    assert str(lacking(trace, capabilities)).startswith("spec.graphs: piecewise; with a KV connector none is allowed: ")
    assert fitted_to(trace, capabilities).spec == trace.spec.model_copy(update={"graphs": "none"})


@pytest.mark.parametrize("engine", [VLLM, VLLM_V1])
@pytest.mark.parametrize(
    ("beside", "is_allowed"),
    [
        ({}, True),
        ({"drafter": "ngram_gpu", "num_speculative_tokens": 2}, True),
        ({"drafter": "eagle", "num_speculative_tokens": 2}, False),
        ({"transfer": Transfer()}, True),
        ({"handoff": Handoff()}, False),
        ({"prefix_cache": False}, False),
        ({"match_tokens": 5}, False),
    ],
)
def test_match_tokens_needs_hybrid_prefix_cache_without_eagle_or_handoff(
    engine: str, beside: dict[str, Value], is_allowed: bool
) -> None:
    keys = {"sampling": "standard", "block_size": 32, "num_speculative_tokens": 0, "match_tokens": 16}
    spec = EngineSpec(layers="hybrid", prefix_cache=True, recurrent_cache="align").model_copy(update=keys | beside)
    trace = Trace(spec=spec, events=(Submit(tick=0, request="a", prompt=(1,), max_tokens=2),))
    capabilities = target_kind(engine).capabilities
    assert (lacking(trace, capabilities) is None) is is_allowed
    assert lacking(fitted_to(trace, capabilities), capabilities) is None


def test_cuda_graphs_need_a_device() -> None:
    spec = EngineSpec(layers="attention", sampling="standard", block_size=32, graphs="full")
    trace = Trace(spec=spec, events=(Submit(tick=0, request="a", prompt=(1,), max_tokens=2),))
    devices: tuple[tuple[Device, bool], ...] = (("sim", True), ("cuda", True), ("cpu", False))
    for device, has_graphs in devices:
        capabilities = target_kind(VLLM_V1).capabilities_under(RunConfig(engine=VLLM_V1, device=device))
        assert (lacking(trace, capabilities) is None) is has_graphs


@pytest.mark.parametrize("engine", [VLLM, VLLM_V1])
def test_generated_traces_have_cuda_graphs_but_references_do_not(engine: str) -> None:
    traces = [for_engine(random_trace(seed), target_kind(engine).capabilities) for seed in range(240)]
    having = [trace for trace in traces if trace.spec.graphs != "none"]
    assert len(traces) // 20 < len(having) < len(traces) // 6
    assert {trace.spec.graphs for trace in having} == {"piecewise", "full", "full_and_piecewise"}
    assert any(trace.spec.layers == "hybrid" for trace in having)
    assert all(synchronous(trace).spec.graphs == "none" for trace in having)


@pytest.mark.parametrize("engine", [VLLM, VLLM_V1])
def test_simple_connector_needs_prefix_cache_and_a_device(engine: str) -> None:
    kind = target_kind(engine)
    simple = Offloading(connector="simple")

    def asked(offloading: Offloading, prefix_cache: bool = True, of: Capabilities = kind.capabilities) -> str | None:
        submit = Submit(tick=0, request="a", prompt=(1,), max_tokens=1)
        spec = EngineSpec(offloading=offloading, prefix_cache=prefix_cache, layers="attention", block_size=32)
        trace = fitted_to(Trace(spec=spec, events=(submit,)), of)
        assert trace.spec.offloading is not None
        return trace.spec.offloading.connector if trace.spec.offloading != offloading else None

    assert asked(simple) is None
    assert asked(simple, prefix_cache=False) == "chunked"
    assert asked(simple.model_copy(update={"blocks_per_chunk": 2})) == "simple"
    if "cpu" in kind.capabilities.devices:
        assert asked(simple, of=kind.capabilities_under(RunConfig(engine=engine, device="cpu"))) == "chunked"


@pytest.mark.parametrize(
    ("keys", "is_allowed"),
    [({}, True), ({"transfer": {}}, True), ({"offloading": {}}, True), ({"handoff": {}}, False)],
)
@pytest.mark.parametrize("engine", [VLLM, VLLM_V1])
def test_session_is_allowed_with_stores_but_not_with_handoff(
    engine: str, keys: dict[str, object], is_allowed: bool
) -> None:
    submit = Submit(tick=0, request="a", prompt=(1,), max_tokens=1, session="s")
    spec = EngineSpec.model_validate({"layers": "attention", "sampling": "standard", "block_size": 32, **keys})
    found = lacking(Trace(spec=spec, events=(submit,)), target_kind(engine).capabilities)
    assert (found is None) == is_allowed


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ({"drafter": "mtp"}, "spec.drafter: mtp; allowed with layers windows are eagle, eagle3, draft_model, "),
        ({"layers": "attention", "window": 33}, "spec.window: 33; with layers attention 32 is allowed"),
        ({"layers": "attention", "window_heads": 4}, "spec.window_heads: 4; with layers attention 1 is allowed"),
        ({"transfer": {}}, "spec.transfer: set with layers windows; use layers: attention, or leave it out: "),
        ({"match_tokens": 8}, "spec.match_tokens: 8; without layers hybrid and prefix_cache 0 is allowed"),
    ],
)
def test_sliding_windows_exclude_some_drafters_and_connectors(keys: dict[str, object], wanted: str) -> None:
    spec = {"layers": "windows", "sampling": "standard", "block_size": 32}
    trace = Trace(spec=EngineSpec.model_validate(spec | keys), events=())
    capabilities = target_kind(VLLM).capabilities
    told = lacking(trace, capabilities)
    assert told is not None
    assert told.startswith(wanted)
    assert lacking(fitted_to(trace, capabilities), capabilities) is None


def test_sliding_windows_are_refused_on_a_gpu_and_by_other_engines() -> None:
    spec = EngineSpec(layers="windows", sampling="standard", block_size=32)
    on_a_gpu = target_kind(VLLM).capabilities_under(RunConfig(engine=VLLM, device="cuda"))
    for capabilities in (on_a_gpu, target_kind("sglang").capabilities, target_kind("specstorm").capabilities):
        assert str(lacking(Trace(spec=spec, events=()), capabilities)).startswith("spec.layers: windows; allowed are ")


@pytest.mark.parametrize(
    ("gpus", "ranks", "lacks"),
    [
        (0, {"tensor_ranks": 2, "pipeline_ranks": 2}, None),
        (1, {"pipeline_ranks": 2}, "spec.pipeline_ranks: 2; this machine has 1 GPU for 2 ranks"),
        (2, {"tensor_ranks": 2}, None),
        (2, {"tensor_ranks": 2, "pipeline_ranks": 2}, "spec.tensor_ranks: 2; this machine has 2 GPUs for 4 ranks"),
    ],
)
def test_ranks_on_gpus_need_a_gpu_each(gpus: int, ranks: dict[str, int], lacks: str | None) -> None:
    spec = EngineSpec(layers="attention", sampling="standard", block_size=32).model_copy(update=ranks)
    assert lacking(Trace(spec=spec, events=()), on_a_gpu(SECOND_RUNNER, gpus)) == lacks


def test_generated_traces_for_a_gpu_have_one_rank() -> None:
    capabilities = on_a_gpu(SECOND_RUNNER, 2)
    assert {for_engine(random_trace(seed), capabilities).spec.num_ranks for seed in range(60)} == {1}


@pytest.mark.parametrize("engine", [VLLM, VLLM_V1])
def test_first_runner_has_several_ranks_on_a_cpu_only(engine: str) -> None:
    trace = Trace(spec=EngineSpec(layers="attention", sampling="standard", block_size=32, tensor_ranks=2), events=())
    kind = target_kind(engine)
    configs = [RunConfig.model_validate({"engine": engine, "device": each}) for each in kind.capabilities.devices]
    allowed = {config.device: lacking(trace, kind.capabilities_under(config)) is None for config in configs}
    assert allowed == ({"sim": True, "cuda": True} if engine == VLLM else {"sim": False, "cpu": True, "cuda": False})

"""The vLLM target without an installation: capabilities, refusals and generated traces."""

from pathlib import Path

import pytest

from cluster.cli import main as cli
from scenarios.capabilities import CONTINUES, FEATURES, lacking
from scenarios.codec import load, loads
from scenarios.events import PromptDraw, SetK, Submit
from scenarios.generation.catalogue import for_engine
from scenarios.generation.fitting import fitted_to, with_block_size
from scenarios.generation.strategies import random_trace
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec
from scenarios.trace import Trace, problems
from workers.targets.registry import target_kind
from workers.targets.specstorm import Specstorm
from workers.targets.target import RunConfig
from workers.targets.vllm.names import VLLM_V1
from workers.targets.vllm.target import VllmV1

KIND = VllmV1()
BLOCK = 32


@pytest.mark.parametrize("seed", range(120))
def test_generated_trace_fits_the_capabilities(seed: int) -> None:
    trace = for_engine(random_trace(seed), KIND.capabilities)
    assert lacking(trace, KIND.capabilities) is None
    assert problems(trace) == []
    assert fitted_to(trace, KIND.capabilities) == trace


def test_generated_traces_cover_features_prefixes_and_short_pools() -> None:
    traces = [for_engine(random_trace(seed), KIND.capabilities) for seed in range(200)]
    assert any(trace.spec.prefix_cache for trace in traces)
    assert {trace.spec.drafter for trace in traces} == {
        *("eagle", "eagle3", "draft_model", "mtp", "dflash", "ngram", "ngram_gpu"),
    }
    shared = [event.prompt for trace in traces for event in trace.submits() if isinstance(event.prompt, PromptDraw)]
    assert any(prompt.common >= 2 * BLOCK for prompt in shared)
    assert {trace.spec.drafter_quality for trace in traces} == {"good", "mediocre", "bad"}
    hybrid = [trace for trace in traces if trace.spec.layers == "hybrid"]
    assert len(traces) // 12 < len(hybrid) < len(traces) // 2
    assert {trace.spec.depth for trace in hybrid} == {1, 2}
    assert {trace.spec.prefix_cache for trace in hybrid} == {False, True}
    for feature in set(FEATURES) - {CONTINUES, "session", "data_rank", *Specstorm.capabilities.features}:
        assert any(getattr(event.params, feature) for trace in traces for event in trace.submits())
    assert sum(any(event.params.grammar for event in trace.submits()) for trace in traces) > len(traces) // 8

    def held(trace: Trace) -> int:
        spec, lengths = trace.spec, [(event, event.prompt) for event in trace.submits()]
        needs = [spec.blocks_needed(p.tokens, e.max_tokens) for e, p in lengths if isinstance(p, PromptDraw)]
        return sum(sorted(needs, reverse=True)[: spec.max_num_seqs])

    assert sum(held(trace) > trace.spec.num_blocks for trace in traces) > len(traces) // 4


@pytest.mark.parametrize(
    ("before", "after"), [(1, 1), (3, 31), (4, 32), (5, 33), (6, 48), (7, 63), (8, 64), (9, 65), (15, 127)]
)
def test_rescaled_prompt_keeps_its_position_in_a_block(before: int, after: int) -> None:
    submit = Submit(tick=0, request="a", prompt=PromptDraw(tokens=before), max_tokens=3)
    trace = with_block_size(Trace(events=(submit,)), BLOCK)
    assert trace.spec.block_size == BLOCK
    assert trace.submits()[0].prompt == PromptDraw(tokens=after)


def test_rescaled_prompt_keeps_own_and_common_blocks() -> None:
    for own, after in ((0, 0), (1, 1), (2, 16), (4, 32), (5, 33)):
        prompt = PromptDraw(tokens=13, common=4, own=own)
        (submit,) = with_block_size(
            Trace(events=(Submit(tick=0, request="a", prompt=prompt, max_tokens=2),)), BLOCK
        ).submits()
        assert submit.prompt == PromptDraw(tokens=97, common=32, own=after)


REFUSED = {
    "spec: {sampling: standard, block_size: 32, drafter: mtp}": (
        "spec.drafter: mtp; allowed with layers hybrid are eagle, ngram_gpu, ngram: "
        "the hybrid model does not support other drafters"
    ),
    "spec: {layers: attention, sampling: standard}": "spec.block_size: 4; allowed are 32",
    "spec: {layers: attention, sampling: standard, block_size: 32, num_blocks: 3}": (
        "spec.max_model_len: 128; num_blocks x block_size allows at most 96"
    ),
    "spec: {sampling: standard, block_size: 32, num_blocks: 3, max_model_len: 96, graphs: full, max_num_seqs: 13}": (
        "spec.max_num_seqs: 13; num_blocks less the state blocks of graphs allows at most 12"
    ),
    "spec: {layers: attention, sampling: standard, block_size: 32, long_prefill_token_threshold: 200}": (
        "spec.long_prefill_token_threshold: 200; max_model_len allows at most 128"
    ),
    "spec: {layers: attention, sampling: standard, block_size: 32, depth: 1, drafter: medusa}": (
        "spec.drafter: medusa; allowed are eagle, eagle3, draft_model, mtp, dflash, ngram_gpu, ngram"
    ),
}


@pytest.mark.parametrize("spec", REFUSED)
def test_unsupported_spec_is_refused_in_one_line(spec: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "trace.yaml"
    file.write_text(f"{spec}\nevents:\n  - {{tick: 0, do: submit, request: a, prompt: [1], max_tokens: 2}}\n")
    assert cli.run(["replay", str(file), "--engine", VLLM_V1]) == 2
    message = capsys.readouterr().err
    assert message == f"specstorm: {file}: engine vllm-v1 cannot run it: {REFUSED[spec]}\n"


DRAFTING = EngineSpec(layers="attention", num_speculative_tokens=1)
ALLOWED = ", ".join(target_kind(VLLM_V1).capabilities.features_on(DRAFTING))
BESIDE_DRAFTS = f"events.1: a request with logit_bias; allowed features are {ALLOWED}"
GRAMMAR = "{tick: 1, do: submit, request: b, prompt: [1], max_tokens: 2, stop: [7], params: {grammar: "
EVENTS = {
    "{tick: 1, do: submit, request: b, prompt: [1], max_tokens: 2, params: {logit_bias: [[3, -100]]}}": BESIDE_DRAFTS,
    "{tick: 1, do: preempt, request: a, mode: drop}": "events.1.mode: drop; allowed modes are deliver",
    "{tick: 1, do: reorder}": f"events.1: reorder; allowed events are submit, {', '.join(KIND.capabilities.events)}",
    "{tick: 1, do: submit, request: b, prompt: [1], max_tokens: 2, params: {temperature: 4.0}}": (
        "events.1.params.temperature: 4.0; at most 2.0 is allowed"
    ),
    "{tick: 1, do: submit, request: b, prompt: [1], max_tokens: 2, params: {min_tokens: 3}}": (
        "events.1.params.min_tokens: 3; at most 2 is allowed"
    ),
    "{tick: 1, do: submit, request: b, prompt: [1], max_tokens: 2, params: {allowed_tokens: [4], bad_words: [[4]]}}": (
        "events.1.params.allowed_tokens: all are banned by min_tokens with stop, or by bad_words; one must be left"
    ),
    f"{GRAMMAR}[[[4, 1]], []]}}}}": (
        "events.1.params.grammar: state 0 ends without a stop token of the request; "
        "a grammar ends by stop tokens alone, all of them or none in a state"
    ),
    f"{GRAMMAR}[[[4, 0]]], bad_words: [[4]]}}}}": (
        "events.1.params.grammar: state 0 allows only tokens that stop, bad_words or allowed_tokens ban; "
        "each state must allow a token"
    ),
}


@pytest.mark.parametrize("event", EVENTS)
def test_unsupported_event_is_refused_and_fixed(event: str, tmp_path: Path) -> None:
    spec = "spec: {layers: attention, sampling: standard, block_size: 32}"
    first = "{tick: 0, do: submit, request: a, prompt: [1, 2], max_tokens: 2}"
    trace = loads(f"{spec}\nevents:\n  - {first}\n  - {event}\n", "x")
    assert lacking(trace, KIND.capabilities) == EVENTS[event]
    assert lacking(fitted_to(trace, KIND.capabilities), KIND.capabilities) is None


ON_GPU = RunConfig(engine="vllm", device="cuda")


@pytest.mark.parametrize(("key", "scenario"), [("offloading", "offloaded_prompts"), ("handoff", "handed_over")])
def test_spec_key_without_gpu_support_is_refused_and_never_generated(key: str, scenario: str) -> None:
    kind = target_kind("vllm")
    trace = load(Path(__file__).parents[4] / "scenarios" / "vllm" / f"{scenario}.yaml")
    assert lacking(trace, kind.capabilities) is None
    assert str(lacking(trace, kind.capabilities_under(ON_GPU))).startswith(f"spec.{key}")
    simulated, real = (
        [getattr(for_engine(random_trace(seed), capabilities).spec, key) for seed in range(60)]
        for capabilities in (kind.capabilities, kind.capabilities_under(ON_GPU))
    )
    assert any(simulated)
    assert not any(real)


def test_set_k_is_refused_with_ngram_gpu_only() -> None:
    events = Submit(tick=0, request="a", prompt=(1,), max_tokens=2), SetK(tick=1, k=1)
    spec = EngineSpec(layers="attention", sampling="standard", block_size=32)
    assert lacking(Trace(spec=spec, events=events), KIND.capabilities) is None
    trace = Trace(spec=spec.model_copy(update={"drafter": "ngram_gpu"}), events=events)
    wanted = "events.1.k: 1; not allowed with drafter ngram_gpu: it asserts a constant number"
    assert lacking(trace, KIND.capabilities) == wanted
    assert fitted_to(trace, KIND.capabilities).events == events[:1]


def test_logit_bias_is_allowed_without_draft_tokens() -> None:
    spec = "spec: {layers: attention, sampling: standard, block_size: 32, num_speculative_tokens: 0}"
    submit = "{tick: 0, do: submit, request: a, prompt: [1, 2], max_tokens: 2, params: {logit_bias: [[3, -100]]}}"
    assert lacking(loads(f"{spec}\nevents:\n  - {submit}\n", "x"), KIND.capabilities) is None


GRAMMARS = Trace(
    spec=EngineSpec(drafter="ngram_gpu", depth=2, num_speculative_tokens=2),
    events=tuple(
        Submit(tick=0, request=name, prompt=(1,), max_tokens=4, params=SamplingParams(grammar=(((1, 0),),)))
        for name in ("first", "second")
    ),
)

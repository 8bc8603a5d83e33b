"""The target SGLang without an installation: capabilities, refusals and messages."""

from pathlib import Path

import pytest

from cluster.cli import main as cli
from scenarios.capabilities import lacking
from scenarios.codec import find_scenarios, load, loads
from scenarios.events import Continuation
from scenarios.generation.catalogue import for_engine
from scenarios.generation.fitting import fitted_to
from scenarios.generation.strategies import random_trace
from scenarios.trace import problems
from workers.run.references import synchronous, without_drafts
from workers.targets.registry import target_kind
from workers.targets.sglang import installation
from workers.targets.sglang.installation import SGLANG, home_of, install_advice, launch
from workers.targets.target import DeviceError, RunConfig

KIND = target_kind(SGLANG)
SCENARIOS = Path(__file__).parents[4] / "scenarios" / SGLANG


@pytest.mark.parametrize("seed", range(120))
def test_generated_trace_is_fitted_to_the_capabilities(seed: int) -> None:
    trace = fitted_to(for_engine(random_trace(seed), KIND.capabilities), KIND.capabilities)
    assert lacking(trace, KIND.capabilities) is None
    assert problems(trace) == []
    assert fitted_to(trace, KIND.capabilities) == trace


def test_fitted_traces_keep_all_kinds_of_requests_and_drafters() -> None:
    traces = [fitted_to(for_engine(random_trace(seed), KIND.capabilities), KIND.capabilities) for seed in range(200)]
    assert {trace.spec.drafter for trace in traces if trace.spec.num_speculative_tokens} == {
        *("eagle", "eagle3", "draft_model", "ngram_corpus"),
    }
    assert {trace.spec.depth for trace in traces} == {1, 2}
    assert {trace.spec.prefix_cache for trace in traces} == {False, True}
    assert len({trace.spec.block_size for trace in traces}) > 2
    assert {trace.spec.tree_width for trace in traces} == {1, 2}
    assert sum(any(event.do == "abort" for event in trace.events) for trace in traces) > len(traces) // 4
    submits = [submit for trace in traces for submit in trace.submits()]
    assert any(submit.params.temperature for submit in submits)
    assert any(submit.params.num_logprobs for submit in submits)
    assert any(submit.params.grammar for submit in submits)
    assert any(submit.params.broken_grammar for submit in submits)
    assert any(submit.params.min_tokens and submit.stop for submit in submits)
    assert any(isinstance(submit.prompt, Continuation) for submit in submits)


SWITCHES = ("plan_stream", "relay_lengths", "mixed_chunks")


def test_fitted_traces_combine_all_switches_and_references_use_none() -> None:
    traces = [fitted_to(for_engine(random_trace(seed), KIND.capabilities), KIND.capabilities) for seed in range(150)]
    assert len({tuple(getattr(trace.spec, key) for key in SWITCHES) for trace in traces}) == 2 ** len(SWITCHES)
    for trace in traces:
        spec = synchronous(trace).spec
        assert not any(getattr(spec, key) for key in SWITCHES)
        assert lacking(without_drafts(trace), KIND.capabilities) is None


@pytest.mark.parametrize("file", find_scenarios([SCENARIOS]), ids=lambda file: file.stem)
def test_scenario_of_sglang_is_within_the_capabilities(file: Path) -> None:
    assert lacking(load(file), KIND.capabilities) is None


PLAIN = "layers: attention, sampling: standard"
REFUSED = {
    f"spec: {{{PLAIN}, num_speculative_tokens: 0, plan_stream: true}}": (
        "spec.plan_stream: True; without drafts False is allowed: it prepares draft steps only"
    ),
    f"spec: {{{PLAIN}, drafter: draft_model, mixed_chunks: true}}": (
        "spec.mixed_chunks: True; with drafts it needs drafter eagle or eagle3: SGLang refuses it with others"
    ),
    f"spec: {{{PLAIN}, drafter: ngram_corpus, tree_width: 2}}": (
        "spec.tree_width: 2; without drafts, or with drafter ngram_corpus, 1 is allowed: only a draft model uses it"
    ),
    f"spec: {{{PLAIN}, drafter: eagle, tree_width: 2, tensor_ranks: 2}}": (
        "spec.tree_width: 2; with several ranks 1 is allowed: "
        "accepted nodes of draft trees are recorded for one rank only"
    ),
    f"spec: {{{PLAIN}, drafter: ngram_corpus, tensor_ranks: 2}}": (
        "spec.drafter: ngram_corpus; with several ranks others are allowed: "
        "accepted nodes of draft trees are recorded for one rank only"
    ),
    f"spec: {{{PLAIN}, tensor_ranks: 4}}": "spec.tensor_ranks: 4; allowed are 1, 2",
    f"spec: {{{PLAIN}, pipeline_ranks: 2}}": "spec.pipeline_ranks: 2; allowed are 1",
    f"spec: {{{PLAIN}, depth: 1, relay_lengths: true}}": (
        "spec.relay_lengths: True; without drafts, or at depth 1, False is allowed: the host knows the lengths then"
    ),
    "spec: {sampling: standard}": "spec.layers: hybrid; allowed are attention",
    f"spec: {{{PLAIN}, logprobs_mode: processed}}": "spec.logprobs_mode: processed; allowed are raw",
    f"spec: {{{PLAIN}, drafter: ngram_gpu}}": (
        "spec.drafter: ngram_gpu; allowed are eagle, eagle3, draft_model, ngram_corpus"
    ),
    f"spec: {{{PLAIN}, max_num_batched_tokens: 18}}": (
        "spec.max_num_batched_tokens: 18; a multiple of block_size 4 is allowed"
    ),
    f"spec: {{{PLAIN}, num_blocks: 32}}": (
        "spec.max_model_len: 128; the KV pool less its reserved slots allows at most 112"
    ),
}


@pytest.mark.parametrize("spec", REFUSED)
def test_unsupported_spec_is_refused_in_one_line(spec: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "trace.yaml"
    file.write_text(f"{spec}\nevents:\n  - {{tick: 0, do: submit, request: a, prompt: [1], max_tokens: 2}}\n")
    assert cli.run(["replay", str(file), "--engine", SGLANG]) == 2
    message = capsys.readouterr().err
    assert message == f"specstorm: {file}: engine sglang cannot run it: {REFUSED[spec]}\n"


@pytest.mark.parametrize(("name", "value"), [("presence_penalty", 0.5), ("min_tokens", 1)])
def test_penalties_and_min_tokens_need_a_spec_without_draft_tokens(name: str, value: float) -> None:
    submit = f"{{tick: 0, do: submit, request: a, prompt: [1, 2], max_tokens: 2, params: {{{name}: {value}}}}}"
    drafting = loads(f"spec: {{{PLAIN}}}\nevents:\n  - {submit}\n", "x")
    assert str(lacking(drafting, KIND.capabilities)).startswith(f"events.0: a request with {name}; allowed ")
    assert lacking(fitted_to(drafting, KIND.capabilities), KIND.capabilities) is None
    plain = loads(f"spec: {{{PLAIN}, num_speculative_tokens: 0}}\nevents:\n  - {submit}\n", "x")
    assert lacking(plain, KIND.capabilities) is None


@pytest.mark.parametrize(
    "other", ["logit_bias: [[3, -100]]", "min_tokens: 2", "frequency_penalty: 1", "grammar: [[[1, 0]]]"]
)
def test_logprobs_are_refused_with_parameters_that_change_logits(other: str) -> None:
    params = f"params: {{num_logprobs: 2, {other}}}"
    submit = f"{{tick: 0, do: submit, request: a, prompt: [1, 2], max_tokens: 2, stop: [31], {params}}}"
    trace = loads(f"spec: {{{PLAIN}, num_speculative_tokens: 0}}\nevents:\n  - {submit}\n", "x")
    allowed = "with logit_bias, min_tokens, grammar or penalties 0 is allowed"
    expected = f"{allowed}: SGLang computes logprobs after these change the logits"
    assert lacking(trace, KIND.capabilities) == f"events.0.params.num_logprobs: 2; {expected}"
    assert lacking(fitted_to(trace, KIND.capabilities), KIND.capabilities) is None


GRAMMAR = "{{tick: 0, do: submit, request: a, prompt: [1], max_tokens: 2, stop: {}, params: {{grammar: {}}}}}"
MISFITS = {
    ("[7]", "[[[1, 0]]]"): "stop: (7,); with grammar (31,) is allowed: this token ends the grammar of every request",
    ("[31]", "[[[1, 1]], []]"): (
        "params.grammar: state 0 ends without a stop token of the request; "
        "a grammar ends by stop tokens alone, all of them or none in a state"
    ),
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_grammar_must_end_by_the_last_token(misfit: tuple[str, str]) -> None:
    trace = loads(f"spec: {{{PLAIN}}}\nevents:\n  - {GRAMMAR.format(*misfit)}\n", "x")
    assert lacking(trace, KIND.capabilities) == f"events.0.{MISFITS[misfit]}"
    fitted = fitted_to(trace, KIND.capabilities)
    assert lacking(fitted, KIND.capabilities) is None
    assert fitted.submits()[0].params.grammar[0][0][0] == 1


def test_missing_installation_message_says_what_to_do(tmp_path: Path) -> None:
    config = RunConfig(engine=SGLANG, engine_home=str(tmp_path))
    with pytest.raises(DeviceError, match=f"engine sglang: SGLang is not installed in {tmp_path}; make sglang"):
        KIND.require(config)
    with pytest.raises(DeviceError, match=r"cuda: engine sglang runs on sim \(streams and pinned memory, simulated\)$"):
        KIND.require(config.model_copy(update={"device": "cuda"}))
    assert home_of(RunConfig(engine=SGLANG)) == installation.ROOT / ".venv-sglang"


def test_overlay_reports_its_number_of_files(tmp_path: Path) -> None:
    file = tmp_path / "sglang" / "srt" / "environ.py"
    file.parent.mkdir(parents=True)
    file.touch()
    config = RunConfig(engine=SGLANG, engine_home=str(tmp_path), engine_path=str(tmp_path))
    assert KIND.overlay_description(config) == f"1 file of {tmp_path} over SGLang of an unknown version"
    assert KIND.overlay_description(config.model_copy(update={"engine_path": ""})) == ""


def test_process_uses_the_python_and_models_of_the_installation(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for file in ("installed", "bin/python"):
        (tmp_path / file).touch()
    command = launch(tmp_path).command
    assert command[0] == str(tmp_path / "bin" / "python")
    assert command[-2:] == (str(tmp_path / "models"), "")
    assert launch(tmp_path).environment["CUDA_VISIBLE_DEVICES"] == ""


def test_advice_without_makefile_names_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert install_advice() == "make sglang"
    monkeypatch.setattr(installation, "ROOT", tmp_path)
    assert (
        install_advice() == "`make sglang` in a checkout of Specstorm makes .venv-sglang; name that with --engine-home"
    )

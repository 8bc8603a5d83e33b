"""The target vLLM as it is seen without an installation: what it takes, what it refuses, and what to do."""

from pathlib import Path

import pytest

from cluster.cli import main as cli
from scenarios.capabilities import CONTINUES, FEATURES, lacking, within
from scenarios.codec import load, loads
from scenarios.edges import drawn_for
from scenarios.events import LoadWeights, PromptDraw, ResetPrefixCache, Schedule, SetK, Submit
from scenarios.rescale import rescaled
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec
from scenarios.strategies import random_trace
from scenarios.trace import Trace, problems
from workers.record.evidence import Difference, Elsewhere, fact
from workers.record.observation import Observation
from workers.record.rules import Reference
from workers.targets.registry import kind_of
from workers.targets.specstorm import Specstorm
from workers.targets.target import VLLM_V1, RunConfig
from workers.targets.vllm.target import Vllm, VllmV1

KIND = VllmV1()
BLOCK = 32


@pytest.mark.parametrize("seed", range(120))
def test_a_generated_trace_is_brought_within_what_it_takes(seed: int) -> None:
    trace = drawn_for(random_trace(seed), KIND.capabilities)
    assert lacking(trace, KIND.capabilities) is None
    assert problems(trace) == []
    assert within(trace, KIND.capabilities) == trace


def test_generated_traces_still_lack_blocks_share_prefixes_and_ask_for_everything() -> None:
    traces = [drawn_for(random_trace(seed), KIND.capabilities) for seed in range(200)]
    assert any(trace.spec.prefix_cache for trace in traces)
    assert {trace.spec.drafter for trace in traces} == {
        *("eagle", "eagle3", "draft_model", "mtp", "dflash", "ngram", "ngram_gpu"),
    }
    shared = [event.prompt for trace in traces for event in trace.submits() if isinstance(event.prompt, PromptDraw)]
    assert any(prompt.common >= 2 * BLOCK for prompt in shared)
    assert {trace.spec.drafter_quality for trace in traces} == {"good", "mediocre", "bad"}
    hybrid = [trace for trace in traces if trace.spec.layers == "hybrid"]
    assert len(traces) // 12 < len(hybrid) < len(traces) // 3
    assert {trace.spec.depth for trace in hybrid} == {1, 2}
    assert {trace.spec.prefix_cache for trace in hybrid} == {False, True}
    for feature in set(FEATURES) - {CONTINUES, "session", *Specstorm.capabilities.features}:
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
def test_a_prompt_keeps_its_place_in_a_block(before: int, after: int) -> None:
    submit = Submit(tick=0, request="a", prompt=PromptDraw(tokens=before), max_tokens=3)
    trace = rescaled(Trace(events=(submit,)), BLOCK)
    assert trace.spec.block_size == BLOCK
    assert trace.submits()[0].prompt == PromptDraw(tokens=after)


def test_a_prompt_keeps_its_own_blocks_between_common_ones_in_blocks_of_another_size() -> None:
    for own, after in ((0, 0), (1, 1), (2, 16), (4, 32), (5, 33)):
        prompt = PromptDraw(tokens=13, common=4, own=own)
        (submit,) = rescaled(Trace(events=(Submit(tick=0, request="a", prompt=prompt, max_tokens=2),)), BLOCK).submits()
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
def test_what_it_lacks_is_said_in_one_line(spec: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "trace.yaml"
    file.write_text(f"{spec}\nevents:\n  - {{tick: 0, do: submit, request: a, prompt: [1], max_tokens: 2}}\n")
    assert cli.run(["replay", str(file), "--engine", VLLM_V1]) == 2
    message = capsys.readouterr().err
    assert message == f"specstorm: {file}: engine vllm-v1 cannot run it: {REFUSED[spec]}\n"


DRAFTING = EngineSpec(layers="attention", num_speculative_tokens=1)
ALLOWED = ", ".join(kind_of(VLLM_V1).capabilities.features_on(DRAFTING))
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
        "events.1.params.grammar: state 0 leaves only what stops, bad words or allowed_tokens ban; one must be left"
    ),
}


@pytest.mark.parametrize("event", EVENTS)
def test_an_event_that_asks_for_too_much_is_refused_and_brought_within(event: str, tmp_path: Path) -> None:
    spec = "spec: {layers: attention, sampling: standard, block_size: 32}"
    first = "{tick: 0, do: submit, request: a, prompt: [1, 2], max_tokens: 2}"
    trace = loads(f"{spec}\nevents:\n  - {first}\n  - {event}\n", "x")
    assert lacking(trace, KIND.capabilities) == EVENTS[event]
    assert lacking(within(trace, KIND.capabilities), KIND.capabilities) is None


ON_GPU = RunConfig(engine="vllm", device="cuda")


@pytest.mark.parametrize(("key", "scenario"), [("offloading", "offloaded_prompts"), ("handoff", "handed_over")])
def test_what_is_observed_on_no_gpu_is_refused_on_one_and_drawn_nowhere_there(key: str, scenario: str) -> None:
    kind = kind_of("vllm")
    trace = load(Path(__file__).parents[4] / "scenarios" / "vllm" / f"{scenario}.yaml")
    assert lacking(trace, kind.capabilities) is None
    assert str(lacking(trace, kind.capabilities_under(ON_GPU))).startswith(f"spec.{key}")
    simulated, real = (
        [getattr(drawn_for(random_trace(seed), capabilities).spec, key) for seed in range(60)]
        for capabilities in (kind.capabilities, kind.capabilities_under(ON_GPU))
    )
    assert any(simulated)
    assert not any(real)


def test_the_number_of_drafts_changes_but_where_the_drafter_asserts_that_it_does_not() -> None:
    events = Submit(tick=0, request="a", prompt=(1,), max_tokens=2), SetK(tick=1, k=1)
    spec = EngineSpec(layers="attention", sampling="standard", block_size=32)
    assert lacking(Trace(spec=spec, events=events), KIND.capabilities) is None
    trace = Trace(spec=spec.model_copy(update={"drafter": "ngram_gpu"}), events=events)
    wanted = "events.1.k: 1; not allowed with drafter ngram_gpu: it asserts a constant number"
    assert lacking(trace, KIND.capabilities) == wanted
    assert within(trace, KIND.capabilities).events == events[:1]


def test_a_bias_is_asked_for_where_nothing_is_drafted() -> None:
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


def steps_of(planned: list[int], drafted: list[int]) -> list[Observation]:
    rows = tuple(range(len(planned)))
    return [
        Observation("scheduled", 3, rows, {"planned_drafts": planned}),
        Observation("inputs", 3, rows, {"drafts": drafted}),
    ]


def breach(contract: str, request: str, **values: object) -> Difference:
    kept = Elsewhere(reference=Reference.SYNCHRONOUS, how="keeps")
    found = {"plane": "contracts", "variable": contract, "request": request, "step": 9, "elsewhere": kept}
    return Difference.model_validate({**found, "expected": 1, "actual": 2, **values})


def test_masks_of_other_rows_are_known_behind_drafts_that_were_cut_and_new_anywhere_else() -> None:
    kind = VllmV1()
    cut, whole = steps_of([2, 2], [1, 2]), steps_of([2, 2], [2, 2])
    assert kind.known(breach("grammar", "second"), GRAMMARS, cut) == "vllm_grammar_rows"
    # The one of which drafts were cut has its own rows; without a cut everybody has.
    assert kind.known(breach("grammar", "first"), GRAMMARS, cut) == ""
    # Rows of a mask stand in the scheduler's order, whatever the batch's is.
    turned = [cut[0], Observation("inputs", 3, (1, 0), {"drafts": [2, 1]})]
    assert kind.known(breach("grammar", "second"), GRAMMARS, turned) == "vllm_grammar_rows"
    assert kind.known(breach("grammar", "first"), GRAMMARS, turned) == ""
    assert kind.known(breach("grammar", "second"), GRAMMARS, whole) == ""
    assert kind.known(breach("grammar", "second", elsewhere=None), GRAMMARS, cut) == ""
    assert kind.known(breach("finish_reason", "second"), GRAMMARS, cut) == ""
    tokens = {"plane": "tokens", "elsewhere": None, "position": 1}
    unlike = breach("tokens", "second", **tokens, reference=Reference.SYNCHRONOUS)
    assert kind.known(unlike, GRAMMARS, cut) == "vllm_grammar_rows"
    assert kind.known(unlike.model_copy(update={"reference": Reference.ALONE}), GRAMMARS, cut) == ""
    # Beside a connector nothing shows but that the engine ends it.
    for request, steps, name in (("second", cut, "vllm_grammar_rows"), ("first", cut, ""), ("second", whole, "")):
        ended = breach("failures", request, plane="transfers", elsewhere=None)
        assert kind.known(ended, GRAMMARS, steps) == name


def test_stops_around_a_minimum_are_known_where_drafts_of_one_step_explain_them() -> None:
    kind = VllmV1()
    submit = Submit(tick=0, request="r", prompt=(1,), max_tokens=20, stop=(5,), params=SamplingParams(min_tokens=9))
    trace = Trace(spec=EngineSpec(depth=2, num_speculative_tokens=2), events=(submit,))
    assert kind.known(breach("min_tokens", "r", position=7), trace, ()) == "vllm_min_tokens_asynchronous"
    assert kind.known(breach("min_tokens", "r", position=5), trace, ()) == ""
    alone = {"plane": "tokens", "elsewhere": None, "reference": Reference.WITHOUT_SPECULATION, "expected": 5}
    assert kind.known(breach("tokens", "r", position=10, **alone), trace, ()) == "vllm_min_tokens_bonus"
    assert kind.known(breach("tokens", "r", position=11, **alone), trace, ()) == ""
    assert kind.known(breach("tokens", "r", position=10, **{**alone, "expected": 6}), trace, ()) == ""


def test_logprobs_of_a_prompt_are_known_to_be_lost_by_a_reset_and_by_nothing_else() -> None:
    kind = VllmV1()
    submit = Submit(tick=1, request="r", prompt=(1, 2), max_tokens=3)
    reset = ResetPrefixCache(tick=2, running=True)
    none, some = (fact("num_logprobs", count=count) for count in (0, 2))
    trace = Trace(events=(submit, reset))
    assert kind.known(breach("prompt_logprobs", "r", actual=none), trace, ()) == "vllm_prompt_logprobs_dropped"
    assert kind.known(breach("prompt_logprobs", "r", actual=some), trace, ()) == ""
    assert kind.known(breach("prompt_logprobs", "r", actual=none), Trace(events=(submit,)), ()) == ""


def test_logprobs_of_a_prompt_are_known_to_be_lost_beside_new_weights_for_which_no_other_run_can_be_asked() -> None:
    submit = Submit(tick=1, request="r", prompt=(1, 2), max_tokens=3)
    none = fact("num_logprobs", count=0)
    breaks = Elsewhere(reference=Reference.SYNCHRONOUS, how="breaks", contract="prompt_logprobs", request="r")
    for depth, event, elsewhere, known in (
        (2, LoadWeights(tick=2), None, "vllm_prompt_logprobs_dropped"),
        (1, LoadWeights(tick=2), None, ""),
        (2, LoadWeights(tick=2, clear_cache=False), None, ""),
        (2, LoadWeights(tick=2), breaks, ""),
        (2, ResetPrefixCache(tick=2, running=True), None, ""),
    ):
        trace = Trace(spec=EngineSpec(depth=depth), events=(submit, event))
        found = breach("prompt_logprobs", "r", actual=none, elsewhere=elsewhere)
        assert VllmV1().known(found, trace, ()) == known


def test_a_count_behind_a_pause_is_known_if_it_lacks_the_drafts_rejected_before_it() -> None:
    def known(actual: int, sampled: list[int], what: str, request: str = "submit 0") -> str:
        steps = [
            Observation("scheduled", 2, (1, 0), {"planned_drafts": [0, 3]}),
            Observation("controlled", 2, (), {"what": what, "version": 0, "tokens": []}),
            Observation("processed", 2, (1, 0), {"sampled": [[4], sampled]}),
        ]
        wrong = Difference(
            plane="counts",
            variable="mirror_computed",
            request=request,
            step=3,
            position=None,
            expected=22,
            actual=actual,
        )
        return VllmV1().known(wrong, Trace(events=(Submit(tick=0, request="a", prompt=(1,), max_tokens=9),)), steps)

    assert known(20, [5, 6], "pause_keep") == "vllm_paused_counts"
    assert known(19, [5, 6], "pause_keep") == known(20, [5], "pause_keep") == ""
    assert known(20, [5, 6], "pause_wait") == known(20, [5, 6], "pause_keep", "submit 1") == ""


def test_a_stop_that_stays_masked_beside_a_penalised_request_is_known_and_nothing_else_there_is() -> None:
    trace = load(Path(__file__).resolve().parents[4] / "findings" / "vllm_outputs_forgotten" / "trace.yaml").explicit()
    place = {"plane": "tokens", "request": "a", "step": 23, "actual": 21}

    def known(position: int, expected: int, trace: Trace = trace, variable: str = "tokens") -> str:
        there = {"position": position, "expected": expected, "variable": variable}
        return VllmV1().known(Difference.model_validate(place | there), trace, [])

    assert known(8, 4) == known(15, 4) == "vllm_outputs_forgotten"
    assert known(7, 4) == known(16, 4) == known(8, 5) == known(8, 4, variable="logprobs") == ""
    alone = trace.model_copy(update={"events": trace.events[:1]})
    synchronous = trace.model_copy(update={"spec": trace.spec.model_copy(update={"depth": 1})})
    assert known(8, 4, alone) == known(8, 4, synchronous) == ""


def test_a_backup_token_of_the_next_step_is_known_under_a_late_device_alone() -> None:
    submits = (
        Submit(tick=0, request="a", prompt=(0, 0, 0, 0, 0), max_tokens=1),
        Submit(tick=2, request="b", prompt=(22,), max_tokens=1),
    )
    steps = [
        Observation("inputs", 1, (0,), {}),
        Observation("processed", 1, (0,), {"sampled": [[]]}),
        Observation("inputs", 2, (1,), {}),
    ]
    lazy = Trace(events=submits, schedule=Schedule(policy="lazy"))
    eager = Trace(events=submits, schedule=Schedule(policy="eager"))
    place = {"plane": "drafts", "variable": "draft_input_ids", "request": "submit 0", "step": 1, "position": 3}

    def known(actual: int, trace: Trace = lazy, steps: list[Observation] = steps) -> str:
        return VllmV1().known(Difference.model_validate(place | {"expected": 0, "actual": actual}), trace, steps)

    assert known(22) == known(-1) == "vllm_backup_tokens_staging"
    assert known(21) == known(22, eager) == known(22, steps=steps[:2]) == ""
    sampled = Observation("processed", 1, (0,), {"sampled": [[7]]})
    assert known(22, steps=[steps[0], sampled, steps[2]]) == ""


def test_drafts_drawn_as_another_request_asks_are_known_of_one_that_was_replaced_and_of_no_other() -> None:
    spec = EngineSpec(drafter="draft_model", draft_sampling="probabilistic", num_speculative_tokens=2)
    submits = [Submit(tick=0, request=name, prompt=(1,), max_tokens=4) for name in ("a", "b")]
    trace = Trace(spec=spec, events=tuple(submits), schedule=Schedule(policy="lazy"))
    steps = [
        Observation("scheduled", step, rows, {"follows": True}) for step, rows in ((2, (0,)), (3, (0,)), (4, (1,)))
    ]
    found = breach("proposed", "a", plane="drafts", elsewhere=None, reference=Reference.SYNCHRONOUS)
    last = found.model_copy(update={"step": 2})
    assert Vllm().known(last, trace, steps) == "vllm_v2_sampling_states_in_flight"
    assert Vllm().known(last.model_copy(update={"step": 1}), trace, steps) == ""
    assert VllmV1().known(last, trace, steps) == ""
    # A step without a plan writes, too.
    for follows, known in ((True, ""), (False, "vllm_v2_sampling_states_in_flight")):
        after = [steps[0], Observation("scheduled", 3, (1,), {"follows": follows})]
        assert Vllm().known(last, trace, after) == known
    assert Vllm().known(last, trace.model_copy(update={"schedule": Schedule()}), steps) == ""


def test_every_known_bug_has_its_page() -> None:
    folder = Path(__file__).resolve().parents[4] / "findings"
    for kind in (Vllm(), VllmV1()):
        assert all((folder / bug.name / "README.md").is_file() for bug in kind.known_bugs())
        assert kind.known_bugs()

"""Known bugs of graphs: recognised by steps that look like decodes and hold a prompt, and by dummy steps."""

from typing import Literal

import pytest

from scenarios.events import Submit
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.record.evidence import Difference, Elsewhere, fact
from workers.record.observation import Observation
from workers.record.rules import Reference
from workers.targets.vllm.target import VllmV1

NAME = "vllm_prompt_in_a_decode_graph"
TOKENS = Difference(
    plane="tokens", variable="tokens", request="a", step=9, expected=3, actual=4, reference=Reference.SYNCHRONOUS
)


def known(
    first: int, width: int, drafts: int = 0, graphs: Literal["full", "piecewise"] = "full", request: int = 0
) -> str:
    """Return the known bug that wrong tokens of `a` are, behind a step of one row of a request."""
    values = {"positions": [first + token for token in range(width)], "starts": [0, width], "drafts": [drafts]}
    spec = EngineSpec(layers="hybrid", sampling="standard", num_speculative_tokens=1, graphs=graphs)
    submits = [Submit(tick=0, request=name, prompt=(1,) * 9, max_tokens=9) for name in "ab"]
    steps = [Observation("inputs", 4, (request,), values)]
    return VllmV1().known(TOKENS, Trace(spec=spec, events=tuple(submits)), steps)


@pytest.mark.parametrize(("first", "width"), [(0, 1), (0, 2), (4, 2), (7, 2)])
def test_a_prompt_that_is_as_wide_as_decodes_is_taken_for_one(first: int, width: int) -> None:
    assert known(first, width) == NAME


def test_other_steps_are_none_of_decode_graphs_that_hold_a_prompt() -> None:
    assert not known(4, 1), "one token behind others is computed as a decode is"
    assert not known(4, 3), "no decode is as wide"
    assert not known(4, 2, drafts=1), "it is a decode"
    assert not known(9, 2), "behind its prompt it is taken for a decode"
    assert not known(4, 2, graphs="piecewise")
    assert not known(4, 2, request=1), "it is another request's"


@pytest.mark.parametrize(
    ("computed", "step", "other", "name"), [(4, 5, 1, NAME), (0, 5, 1, ""), (4, 3, 1, ""), (4, 5, 2, "")]
)
def test_who_finds_what_such_a_step_left_in_the_prefix_cache_is_wrong(
    computed: int, step: int, other: int, name: str
) -> None:
    spec = EngineSpec(
        layers="hybrid",
        recurrent_cache="align",
        prefix_cache=True,
        sampling="standard",
        num_speculative_tokens=1,
        graphs="full",
    )
    submits = [Submit(tick=0, request=each, prompt=(1,) * 9, max_tokens=9) for each in "bca"]
    steps = [
        begun(0, 0, [1] * 9, 0),
        begun(1, 1, [other] * 9, 0),
        Observation("inputs", 4, (1,), {"positions": [4, 5], "starts": [0, 2], "drafts": [0]}),
        begun(step, 2, [1] * 9, computed),
    ]
    assert VllmV1().known(TOKENS, Trace(spec=spec, events=tuple(submits)), steps) == name


def begun(step: int, request: int, tokens: list[int], computed: int) -> Observation:
    """Return the plan of a step in which a request begins behind so many tokens."""
    return Observation("scheduled", step, (request,), {"begun": [(request, tokens)], "scheduled_computed": [computed]})


def dummy_known(
    *steps: Observation,
    num_speculative_tokens: int = 0,
    graphs: Literal["full", "piecewise"] = "full",
    layers: Literal["short_conv", "gated_delta"] = "short_conv",
) -> str:
    """Return the known bug that wrong tokens of `a`, which is request 0, are behind some steps."""
    spec = EngineSpec(
        layers="hybrid",
        recurrent_layers=layers,
        sampling="standard",
        num_speculative_tokens=num_speculative_tokens,
        graphs=graphs,
    )
    submits = [Submit(tick=0, request=name, prompt=(1,) * 9, max_tokens=9) for name in "ab"]
    return VllmV1().known(TOKENS, Trace(spec=spec, events=tuple(submits)), steps)


def controlled(step: int, what: str) -> Observation:
    return Observation("controlled", step, (), {"what": what, "version": 0, "tokens": []})


def computed(step: int, first: int, slot: int, request: int = 0, whole: bool = False) -> Observation:
    """Return the inputs of a step with one row, of two tokens if all of it is computed as a prompt is."""
    width = 1 + whole
    values = {"positions": [*range(first, first + width)], "starts": [0, width], "drafts": [0]}
    return Observation("inputs", step, (request,), {**values, "states_0": [slot], "whole_0": [whole]})


def planned(step: int, computed: int, slot: int, taken: tuple[int, ...] = (), request: int = 0) -> Observation:
    values = {"scheduled_computed": [computed], "states": [[request, [[slot]]]], "taken": [*taken], "begun": []}
    return Observation("scheduled", step, (request,), values)


DUMMY_STEP = controlled(4, "dummy_step")
LAST_CHUNK = computed(4, 8, slot=5)
NEXT = planned(5, 9, slot=5)


def test_a_dummy_step_behind_a_prompts_token_goes_on_from_the_slots_of_the_last_step_of_decodes() -> None:
    name = "vllm_dummy_step_in_a_prompt"
    assert dummy_known(LAST_CHUNK, DUMMY_STEP, NEXT) == name
    assert dummy_known(DUMMY_STEP, NEXT, LAST_CHUNK) == name, "inputs may be told of later"
    assert dummy_known(LAST_CHUNK, DUMMY_STEP, NEXT, num_speculative_tokens=3) == name
    assert dummy_known(LAST_CHUNK, DUMMY_STEP, NEXT, layers="gated_delta") == name
    decode, chunk = computed(3, 9, slot=5, request=1), computed(4, 4, slot=7, request=1, whole=True)
    assert dummy_known(decode, chunk, DUMMY_STEP, NEXT) == name, "the slot was left by another step"


def test_other_dummy_steps_are_new() -> None:
    assert not dummy_known(LAST_CHUNK, NEXT)
    assert not dummy_known(LAST_CHUNK, DUMMY_STEP, NEXT, graphs="piecewise")
    assert not dummy_known(LAST_CHUNK, DUMMY_STEP, NEXT, layers="gated_delta", num_speculative_tokens=3)
    assert not dummy_known(computed(4, 9, slot=5), DUMMY_STEP, NEXT), "the row is behind its prompt"
    assert not dummy_known(computed(4, 4, slot=5, whole=True), DUMMY_STEP, NEXT), "no graph was given its slot"
    assert not dummy_known(LAST_CHUNK, DUMMY_STEP, planned(5, 9, slot=6)), "its state is elsewhere"
    assert not dummy_known(LAST_CHUNK, DUMMY_STEP, planned(5, 9, slot=5, taken=(5,))), "it was handed the block since"
    assert not dummy_known(LAST_CHUNK, DUMMY_STEP, planned(5, 0, slot=5)), "it begins"
    assert not dummy_known(LAST_CHUNK, DUMMY_STEP, planned(5, 9, slot=5, request=1)), "it is another request's"


def test_a_dummy_step_during_a_pause_goes_on_from_states_of_requests_that_it_keeps() -> None:
    name = "vllm_dummy_step_of_kept_requests"
    pause, decode = controlled(4, "pause_keep"), computed(4, 9, slot=5)
    assert dummy_known(decode, pause, DUMMY_STEP, NEXT) == name
    assert dummy_known(decode, pause, DUMMY_STEP, NEXT, layers="gated_delta", num_speculative_tokens=3) == name
    assert not dummy_known(decode, pause, controlled(4, "resume"), DUMMY_STEP, NEXT)
    assert not dummy_known(decode, controlled(4, "pause_wait"), DUMMY_STEP, NEXT)
    assert not dummy_known(decode, pause, NEXT)
    assert not dummy_known(decode, pause, DUMMY_STEP, planned(5, 0, slot=5)), "it is computed again"
    assert not dummy_known(computed(4, 9, slot=5, request=1), pause, DUMMY_STEP, NEXT), "it is another request's"


def test_logprobs_of_a_prompt_behind_drafts_are_known_of_steps_in_graphs() -> None:
    behind = "vllm_prompt_logprobs_behind_drafts"
    assert logprobs_known(position=5) == behind
    assert logprobs_known(position=8) == behind
    assert logprobs_known(position=8, variable="same_context", request="b") == behind, "it is compared with that of `a`"
    assert not logprobs_known(position=8, request="b")
    assert not logprobs_known(position=4), "what a step without a graph computed is behind its token"
    assert not logprobs_known(position=9), "no step was seen that computed it"
    assert not logprobs_known(position=5, drafts=0)
    assert not logprobs_known(position=5, graphs="none")
    assert not logprobs_known(position=5, drafter="ngram_gpu"), "it has no model whose graphs write"
    assert not logprobs_known(position=5, variable="logprobs"), "those of outputs are computed before drafts"
    assert not logprobs_known(position=5, width=40), "it is larger than any graph"


def logprobs_known(
    position: int,
    variable: str = "prompt_logprobs",
    drafts: int = 1,
    graphs: Literal["none", "piecewise"] = "piecewise",
    drafter: Literal["eagle", "ngram_gpu"] = "eagle",
    width: int = 4,
    request: str = "a",
) -> str:
    """Return the known bug that a difference of `a` is, whose tokens from 4 on are in one step."""
    values = {"positions": [4 + token for token in range(width)], "starts": [0, width], "drafts": [0]}
    spec = EngineSpec(
        layers="attention",
        sampling="standard",
        num_speculative_tokens=drafts,
        graphs=graphs,
        drafter=drafter,
        max_num_batched_tokens=64,
    )
    params = SamplingParams(num_prompt_logprobs=1)
    submits = [Submit(tick=0, request=name, prompt=(1,) * 60, max_tokens=9, params=params) for name in "ab"]
    plane = "contracts" if variable == "same_context" else "logits"
    found = TOKENS.model_copy(update={"plane": plane, "variable": variable, "position": position, "request": request})
    if plane == "contracts":
        elsewhere = Elsewhere(reference=Reference.SYNCHRONOUS, how="keeps")
        due = fact("in_prompt", what=fact("logit_of_context", token=1, logit=0.5), place=position)
        found = found.model_copy(update={"expected": due, "position": None, "reference": None, "elsewhere": elsewhere})
    steps = [Observation("inputs", 4, (0,), values)]
    return VllmV1().known(found, Trace(spec=spec, events=tuple(submits)), steps)

"""Known bugs of graphs: recognised by steps that look like decodes and hold a prompt."""

from typing import Literal

import pytest

from scenarios.events import Submit
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.record.evidence import Difference, Elsewhere, Reference, fact
from workers.record.observation import Observation
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

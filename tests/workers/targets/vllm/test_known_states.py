"""Known bugs of the states of hybrid models: recognised by the rows of two steps, and by nothing near them."""

from collections.abc import Sequence
from typing import Literal

import pytest

from scenarios.events import Submit
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.record.evidence import Difference, fact
from workers.record.observation import Observation
from workers.targets.vllm.target import Vllm, VllmV1


def inputs(step: int, requests: tuple[int, ...], first: Sequence[int]) -> Observation:
    """Return what a model is given in a step with one token of each request, at these positions."""
    starts = list(range(len(first) + 1))
    values = {"positions": list(first), "starts": starts, "drafts": [0] * len(first), "goes_on_0": [True] * len(first)}
    return Observation(point="inputs", step=step, requests=requests, values=values)


@pytest.mark.parametrize(
    ("kept", "cache", "depth", "now", "known"),
    [
        # Request 1 was in row 1, where 2 has come to, which is due 1.
        (1, "align", 2, (1, 2), "vllm_accepted_counts_moved"),
        # 3 was there before, and is due 2 tokens.
        (2, "align", 2, (1, 3), "vllm_accepted_counts_moved"),
        (1, "align", 2, (1, 3), ""),
        # It has not moved, or nothing has come to where it was.
        (1, "align", 2, (0, 1), ""),
        (1, "align", 2, (1,), ""),
        # Counts are not read, or not looked for where rows were.
        (1, "none", 2, (1, 2), ""),
        (1, "align", 1, (1, 2), ""),
    ],
)
def test_a_state_by_the_count_of_who_came_to_a_moved_rows_place_is_known(
    kept: int, cache: Literal["none", "align"], depth: int, now: tuple[int, ...], known: str
) -> None:
    at = {0: (8, 9), 1: (9, 13), 2: (0, 0), 3: (20, 22)}
    before = inputs(4, (0, 1, 3), [at[request][0] for request in (0, 1, 3)])
    steps = [before, inputs(5, now, [at[request][1] for request in now])]
    found = Difference(
        plane="inputs",
        variable="kept",
        request="submit 1",
        step=5,
        expected=fact("behind_kept", kept=4),
        actual=fact("behind_kept", kept=kept),
    )
    trace = Trace(
        spec=EngineSpec(layers="hybrid", recurrent_cache=cache, depth=depth, prefix_cache=cache == "align"), events=()
    )
    assert VllmV1().known(found, trace, steps) == known
    assert Vllm().known(found, trace, steps) != "vllm_accepted_counts_moved"


@pytest.mark.parametrize(
    ("layers", "request_name", "position", "width", "drafts", "known"),
    [
        ("hybrid", "r", 6, 3, 0, "vllm_resumed_outputs_verified"),
        ("hybrid", "r", 5, 4, 0, "vllm_resumed_outputs_verified"),
        # A chunk of its prompt, longer than a run of drafts, a token, with drafts.
        ("hybrid", "r", 4, 3, 0, ""),
        ("hybrid", "r", 6, 5, 0, ""),
        ("hybrid", "r", 6, 1, 0, ""),
        ("hybrid", "r", 6, 3, 2, ""),
        # Another request, or no states.
        ("hybrid", "s", 6, 3, 0, ""),
        ("attention", "r", 6, 3, 0, ""),
    ],
)
def test_tokens_behind_outputs_that_were_computed_again_in_a_short_chunk_are_known(
    layers: Literal["hybrid", "attention"], request_name: str, position: int, width: int, drafts: int, known: str
) -> None:
    submits = [Submit(tick=0, request=name, prompt=(1, 2, 3, 4, 5), max_tokens=9) for name in ("r", "s")]
    values = {"positions": list(range(position, position + width)), "starts": [0, width], "drafts": [drafts]}
    steps = [Observation(point="inputs", step=7, requests=(0,), values=values)]
    found = Difference(
        plane="tokens", variable="tokens", request=request_name, step=9, position=4, expected=3, actual=4
    )
    trace = Trace(spec=EngineSpec(layers=layers, num_speculative_tokens=3), events=tuple(submits))
    assert VllmV1().known(found, trace, steps) == known
    assert Vllm().known(found, trace, steps) != "vllm_resumed_outputs_verified"


@pytest.mark.parametrize(
    ("variable", "step", "first", "width", "first_runner", "second_runner"),
    [
        ("goes_on", 4, 0, 4, "vllm_padded_prompts_go_on", ""),
        ("kept", 5, 0, 4, "vllm_padded_prompts_of_one_token", "vllm_padded_prompts_of_one_token"),
        # It does not begin there, or has a longer prompt.
        ("goes_on", 4, 3, 4, "", ""),
        ("goes_on", 4, 0, 5, "", ""),
        ("kept", 5, 0, 5, "", ""),
    ],
)
def test_states_of_prompts_that_were_padded_are_known(
    variable: str, step: int, first: int, width: int, first_runner: str, second_runner: str
) -> None:
    """Request 1 is in steps 4 and 5, behind a row of one token, with 3 placeholders in the former."""
    padded = inputs(4, (0, 1), [9, first])
    positions = [9, *range(first, first + width)]
    values = {**padded.values, "positions": positions, "starts": [0, 1, 1 + width], "drafts": [0, 3]}
    steps = [Observation(point="inputs", step=4, requests=(0, 1), values=values), inputs(5, (1,), [1])]
    expected, actual = fact("begins"), fact("goes_on")
    if variable == "kept":
        expected, actual = fact("behind_kept", kept=1), fact("behind_kept", kept=4)
    found = Difference(
        plane="inputs", variable=variable, request="submit 1", step=step, expected=expected, actual=actual
    )
    trace = Trace(spec=EngineSpec(layers="hybrid"), events=())
    assert VllmV1().known(found, trace, steps) == first_runner
    assert Vllm().known(found, trace, steps) == second_runner

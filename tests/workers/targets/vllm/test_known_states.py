"""Known bugs of the states of hybrid models: recognised by the rows of two steps, and by nothing near them."""

from collections.abc import Sequence
from typing import Literal

import pytest

from scenarios.events import Submit
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.record.evidence import Difference, fact
from workers.record.observation import Observation
from workers.record.rules import Reference
from workers.targets.vllm.target import Vllm, VllmV1


def inputs(step: int, requests: tuple[int, ...], first: Sequence[int], width: int = 1, drafts: int = 0) -> Observation:
    """Return what a model is given in a step with so many tokens and drafts of each request, from these positions."""
    starts = list(range(0, width * len(first) + 1, width))
    positions = [start + token for start in first for token in range(width)]
    kinds = {"drafts": [drafts] * len(first), "goes_on_0": [True] * len(first)}
    return Observation("inputs", step, requests, {"positions": positions, "starts": starts, **kinds})


def kept(due: int, there: int, request: int = 1) -> Difference:
    """Return a state behind other tokens of the step before than those due, in step 5."""
    return Difference(
        plane="inputs",
        variable="kept",
        request=f"submit {request}",
        step=5,
        expected=fact("behind_kept", kept=due),
        actual=fact("behind_kept", kept=there),
    )


@pytest.mark.parametrize(
    ("there", "cache", "depth", "now", "known"),
    [
        # Request 1 was in row 1, where 2 has come to, which is due 1.
        (1, "align", 2, (1, 2), "vllm_accepted_counts_moved"),
        # 3 was there before, and is due 2 tokens.
        (2, "align", 2, (1, 3), "vllm_accepted_counts_moved"),
        (1, "align", 2, (1, 3), ""),
        # 4 was there with a chunk of its prompt.
        (1, "align", 2, (1, 4), "vllm_accepted_counts_moved"),
        # It has not moved, or nothing has come to where it was.
        (1, "align", 2, (0, 1), ""),
        (1, "align", 2, (1,), ""),
        # Counts are not read, or not looked for where rows were.
        (1, "none", 2, (1, 2), ""),
        (1, "align", 1, (1, 2), ""),
    ],
)
def test_a_state_by_the_count_of_who_came_to_a_moved_rows_place_is_known(
    there: int, cache: Literal["none", "align"], depth: int, now: tuple[int, ...], known: str
) -> None:
    at = {0: (8, 9), 1: (9, 13), 2: (0, 0), 3: (20, 22), 4: (0, 26)}
    rows = (0, 1, 3, 4)
    values = inputs(4, rows, [at[request][0] for request in rows]).values
    before = Observation("inputs", 4, rows, {**values, "drafts": [3, 3, 3, 0]})
    plan = Observation("scheduled", 5, now, {"follows": True})
    steps = [before, plan, inputs(5, now, [at[request][1] for request in now])]
    found = kept(4, there)
    spec = EngineSpec(layers="hybrid", recurrent_cache=cache, depth=depth, prefix_cache=cache == "align")
    submits = [Submit(tick=0, request=name, prompt=(1, 2), max_tokens=9) for name in "abcde"]
    trace = Trace(spec=spec, events=tuple(submits))
    assert VllmV1().known(found, trace, steps) == known
    assert Vllm().known(found, trace, steps) != "vllm_accepted_counts_moved"


@pytest.mark.parametrize(
    ("behind", "owner", "drafts", "known"),
    [
        (2, 3, 3, "vllm_accepted_counts_moved"),
        (4, 3, 3, "vllm_accepted_counts_moved"),
        # More than it can have had, or none; or the row was the request's own.
        (5, 3, 3, ""),
        (2, 3, 0, ""),
        (2, 1, 3, ""),
    ],
)
def test_a_state_copied_by_the_count_of_its_rows_last_owner_is_known(
    behind: int, owner: int, drafts: int, known: str
) -> None:
    steps = [inputs(4, (owner, 2), (8, 0), drafts=drafts), inputs(5, (1,), (32,))]
    found = kept(1, behind).model_copy(update={"variable": "copied"})
    spec = EngineSpec(layers="hybrid", recurrent_cache="align", prefix_cache=True)
    submits = [Submit(tick=0, request=name, prompt=(1, 2), max_tokens=9) for name in "abcd"]
    assert VllmV1().known(found, Trace(spec=spec, events=tuple(submits)), steps) == known


@pytest.mark.parametrize(
    ("there", "before", "drafts", "follows", "known"),
    [
        # It was left out of a step in which another was, or of one for which nothing was planned.
        (1, (0,), 3, True, "vllm_accepted_counts_skipped_steps"),
        (1, (0, 1), 3, False, "vllm_accepted_counts_skipped_steps"),
        (2, (0,), 3, True, ""),
        (1, (0, 1), 3, True, ""),
        # There were no drafts that could be accepted.
        (1, (0,), 0, True, ""),
    ],
)
def test_a_state_behind_one_token_is_known_of_a_request_that_a_step_has_left_out(
    there: int, before: tuple[int, ...], drafts: int, follows: bool, known: str
) -> None:
    steps = [
        inputs(3, (0, 1), (8, 9), 1 + drafts, drafts),
        inputs(4, before, [12, 13][: len(before)], 1 + drafts, drafts),
        Observation("scheduled", 5, (0, 1), {"follows": follows}),
        inputs(5, (0, 1), (16, 17)),
    ]
    submits = [Submit(tick=0, request=name, prompt=(1, 2, 3, 4), max_tokens=19) for name in ("a", "b")]
    trace = Trace(spec=EngineSpec(layers="hybrid"), events=tuple(submits))
    assert VllmV1().known(kept(3, there), trace, steps) == known
    assert Vllm().known(kept(3, there), trace, steps) == ""


@pytest.mark.parametrize(
    ("there", "first", "width", "drafts", "known"),
    [
        (1, 6, 2, 0, "vllm_resumed_outputs_verified"),
        (2, 6, 2, 0, ""),
        # Tokens of its prompt, one token, drafts, and more than can be taken for drafts.
        (1, 4, 2, 0, ""),
        (1, 6, 1, 0, ""),
        (1, 6, 2, 1, ""),
        (1, 6, 5, 0, ""),
    ],
)
def test_a_state_behind_the_first_of_several_tokens_is_known_of_those_behind_a_prompt(
    there: int, first: int, width: int, drafts: int, known: str
) -> None:
    submits = [Submit(tick=0, request=name, prompt=(1, 2, 3, 4, 5), max_tokens=9) for name in ("a", "b")]
    steps = [
        inputs(4, (0, 1), (first, first), width, drafts),
        Observation("scheduled", 5, (0, 1), {"follows": True}),
        inputs(5, (0, 1), (first + width, first + width)),
    ]
    trace = Trace(spec=EngineSpec(layers="hybrid"), events=tuple(submits))
    assert VllmV1().known(kept(width, there), trace, steps) == known
    # Where a state is copied to a later block outputs are told of.
    aligned = EngineSpec(layers="hybrid", recurrent_cache="align", prefix_cache=True)
    other = Difference(
        plane="tokens", variable="tokens", request="b", step=9, expected=3, actual=4, reference=Reference.ALONE
    )
    is_met = known != "" or there > 1
    told = VllmV1().known(other, trace.model_copy(update={"spec": aligned}), steps)
    assert told == ("vllm_resumed_outputs_verified" if is_met else "")
    assert VllmV1().known(other, trace, steps) == ""


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
    submits = [Submit(tick=0, request=name, prompt=(1,), max_tokens=9) for name in ("a", "b")]
    trace = Trace(spec=EngineSpec(layers="hybrid"), events=tuple(submits))
    assert VllmV1().known(found, trace, steps) == first_runner
    assert Vllm().known(found, trace, steps) == second_runner


@pytest.mark.parametrize(
    ("num_blocks", "length", "shown", "preempted", "depth", "name"),
    [
        (4, 100, 1, 1328, 2, "vllm_states_in_flight"),
        # With room for a third state, of fewer chunks, of what the prefix cache keeps, of turns, and synchronous.
        (6, 100, 1, 1328, 2, ""),
        (4, 40, 1, 1328, 2, ""),
        (4, 100, 0, 1328, 2, ""),
        (4, 100, 1, 9, 2, ""),
        (4, 100, 1, 1328, 1, ""),
    ],
)
def test_no_progress_is_known_where_a_third_state_has_no_room_and_nothing_is_kept(
    num_blocks: int, length: int, shown: int, preempted: int, depth: int, name: str
) -> None:
    keys = {"layers": "hybrid", "recurrent_cache": "align", "prefix_cache": True, "block_size": 32, "depth": depth}
    spec = EngineSpec.model_validate({**keys, "num_blocks": num_blocks, "num_speculative_tokens": 0})
    params = SamplingParams(num_prompt_logprobs=shown)
    trace = Trace(spec=spec, events=(Submit(tick=0, request="a", prompt=(1,) * length, max_tokens=4, params=params),))
    probes = {"preemption_by_blocks": preempted}
    assert Vllm().known_hang(trace, probes) == VllmV1().known_hang(trace, probes) == name
    others = trace.model_copy(update={"spec": spec.model_copy(update={"layers": "attention"})})
    assert not Vllm().known_hang(others, probes)

"""Known bugs of the recurrent states of vLLM's hybrid models beside drafters, by what a run shows of them."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from scenarios.events import Continuation
from scenarios.trace import Trace
from workers.record.evidence import Difference, fact
from workers.record.observation import Observation
from workers.targets.target import KnownBug


def _behind_prompts(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a state goes on too early of a row of one token, without drafts, that stands behind a prompt's."""
    if found.variable != "kept":
        return False
    inputs = next(seen for seen in steps if (seen.point, seen.step) == ("inputs", found.step))
    numbers = list(map("submit {}".format, inputs.requests))
    starts, drafts = inputs.values["starts"], inputs.values["drafts"]
    widths = [stop - start for start, stop in pairwise(starts)]
    goes_on = next(values for name, values in inputs.values.items() if name.startswith("goes_on_"))
    row = numbers.index(found.request)
    before = range(row)
    is_behind = any(not drafts[each] and (widths[each] > 1 or not goes_on[each]) for each in before)
    return (widths[row], drafts[row]) == (1, 0) and is_behind


def _of_padded_prompts(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a state is behind the placeholders that a prompt of one token was padded with.

    Of a request that begins with it, beside one that runs; what it left is seen in the next step that it is in.
    """
    if found.variable != "kept":
        return False
    named = [(seen, [f"submit {number}" for number in seen.requests]) for seen in steps if seen.point == "inputs"]
    before = [seen for seen, names in named if seen.step < found.step and found.request in names]
    return bool(before) and _is_padded(before[-1], found.request)


def _verified_at_once(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a prompt of one token goes on from a state, in a step for which it was padded with placeholders."""
    if found.variable != "goes_on" or found.expected != fact("begins"):
        return False
    inputs = next(seen for seen in steps if (seen.point, seen.step) == ("inputs", found.step))
    return _is_padded(inputs, found.request)


def _is_padded(inputs: Observation, request: str) -> bool:
    """Tell whether a request begins in a step, with one token and placeholders behind it."""
    row = [f"submit {number}" for number in inputs.requests].index(request)
    starts, drafts = inputs.values["starts"], inputs.values["drafts"]
    begins = inputs.values["positions"][starts[row]] == 0
    return bool(begins and drafts[row] > 0 and starts[row + 1] - starts[row] == 1 + drafts[row])


def _counts_moved(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a row that has moved goes on behind as many tokens as are due to the one that is where it was.

    Counts of the step before are moved with their rows, and then looked for where these were.
    """
    spec, actual = trace.spec, found.actual
    if found.variable != "kept" or spec.recurrent_cache != "align" or spec.depth == 1:
        return False
    match [seen for seen in steps if seen.point == "inputs" and seen.step <= found.step]:
        case [*_, before, now]:
            pass
        case _:
            return False
    request = int(found.request.removeprefix("submit "))
    if request not in before.requests or (was := before.requests.index(request)) >= len(now.requests):
        return False
    there = now.requests[was]
    due = _first(now, there) - _first(before, there) if there in before.requests else 1
    return there != request and actual == fact("behind_kept", kept=due)


def _outputs_verified(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether outputs of a request were computed again in a chunk that is no longer than a run of drafts.

    The chunk goes on from a state, and its first token is behind the prompt.
    """
    # How long a prompt is that goes on from another's output is not said in a trace.
    prompt_lengths = {
        number: submit.prompt_length
        for number, submit in enumerate(trace.submitted())
        if found.request in (submit.request, f"submit {number}") and not isinstance(submit.prompt, Continuation)
    }
    if trace.spec.layers != "hybrid":
        return False
    for seen in steps:
        if seen.point != "inputs" or seen.step > found.step:
            continue
        starts, positions, drafts = (seen.values[name] for name in ("starts", "positions", "drafts"))
        for row, number in enumerate(seen.requests):
            width, first = starts[row + 1] - starts[row], positions[starts[row]]
            is_short = 1 < width <= 1 + trace.spec.num_speculative_tokens and not drafts[row]
            if is_short and number in prompt_lengths and first >= prompt_lengths[number]:
                return True
    return False


def _first(inputs: Observation, request: int) -> int:
    """Return the position of a request's first token in a step."""
    first: int = inputs.values["positions"][inputs.values["starts"][inputs.requests.index(request)]]
    return first


_PADDED_PROMPTS = KnownBug(
    "vllm_padded_prompts_of_one_token",
    "docs/findings/vllm_padded_prompts_of_one_token.md",
    "vLLM 0.32.0 pads a prompt of one token with placeholders that stay in its recurrent state.",
)
BUGS_OF_FIRST: Mapping[KnownBug, Callable[[Difference, Trace, Sequence[Observation]], bool]] = {
    KnownBug(
        "vllm_accepted_counts_moved",
        "https://github.com/vllm-project/vllm/issues/51571",
        "vLLM 0.32.0 moves accepted counts of a step with their rows, and looks for them where these were.",
    ): _counts_moved,
    _PADDED_PROMPTS: _of_padded_prompts,
    KnownBug(
        "vllm_padded_prompts_go_on",
        "docs/findings/vllm_padded_prompts_go_on.md",
        "vLLM 0.32.0 pads a prompt of one token, takes it for drafts, and goes on from what its state's block held.",
    ): _verified_at_once,
    KnownBug(
        "vllm_resumed_outputs_verified",
        "docs/findings/vllm_resumed_outputs_verified.md",
        "vLLM 0.32.0 takes outputs that are computed again for drafts, of which it keeps the state behind the first.",
    ): _outputs_verified,
}
BUGS_OF_SECOND: Mapping[KnownBug, Callable[[Difference, Trace, Sequence[Observation]], bool]] = {
    KnownBug(
        "vllm_v2_states_behind_prompts",
        "docs/findings/vllm_v2_states_behind_prompts.md",
        "vLLM 0.32.0 takes a decode for a prompt behind one as long as a run of drafts, and its state too early.",
    ): _behind_prompts,
    _PADDED_PROMPTS: _of_padded_prompts,
}

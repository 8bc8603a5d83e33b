"""Known bugs of the recurrent states of vLLM's hybrid models beside drafters, by what a run shows of them."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from scenarios.events import Continuation
from scenarios.trace import Trace
from workers.record.evidence import Difference, fact
from workers.record.observation import Observation
from workers.targets.target import KnownBug
from workers.targets.vllm.engine_sizes import RECURRENT_LAYERS

# More than requests of a trace take in turns.
_PREEMPTIONS = 20


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
    if found.variable not in ("kept", "copied") or spec.recurrent_cache != "align" or spec.depth == 1:
        return False
    match [seen for seen in steps if seen.point == "inputs" and seen.step <= found.step]:
        case [*_, before, now]:
            pass
        case _:
            return False
    if found.variable == "copied":
        return _is_of_last_owner(found, before, now)
    request = int(found.request.removeprefix("submit "))
    if request not in before.requests or (was := before.requests.index(request)) >= len(now.requests):
        return False
    there = now.requests[was]
    # Of a row without drafts one token is counted, however much of its prompt it computed.
    had_drafts = there in before.requests and before.values["drafts"][before.requests.index(there)] > 0
    due = _first(now, there) - _first(before, there) if had_drafts else 1
    return there != request and actual == fact("behind_kept", kept=due)


def _is_of_last_owner(found: Difference, before: Observation, now: Observation) -> bool:
    """Tell whether a state is copied as it was behind more tokens than one, as its row's last owner may have had.

    The copy of that owner's count came late, behind what was written for the request whose row it is now.
    """
    request = int(found.request.removeprefix("submit "))
    row = now.requests.index(request)
    if row >= len(before.requests) or before.requests[row] == request:
        return False
    drafts: int = before.values["drafts"][row]
    return found.actual in [fact("behind_kept", kept=kept) for kept in range(2, 2 + drafts)]


def _counts_of_skipped_steps(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a request that was left out of the step before goes on behind one token, where more are due.

    It had drafts in the last step that it was in.
    """
    if found.variable not in ("kept", "copied") or found.actual != fact("behind_kept", kept=1):
        return False
    inputs = [seen for seen in steps if seen.point == "inputs" and seen.step < found.step]
    request = int(found.request.removeprefix("submit "))
    last = next((seen for seen in reversed(inputs) if request in seen.requests), None)
    if last is None or not last.values["drafts"][last.requests.index(request)]:
        return False
    # A step for which nothing is planned has no inputs, and leaves everybody out.
    plan = next(seen for seen in steps if (seen.point, seen.step) == ("scheduled", found.step))
    return last is not inputs[-1] or not plan.values["follows"]


def _outputs_verified(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether outputs of a request, computed again, left a state behind each, and it goes on behind the first.

    A state that is copied to the block of a later position is not told of; that of its outputs is.
    """
    inputs = [seen for seen in steps if seen.point == "inputs"]
    if found.variable != "kept":
        numbers = [number for number, submit in enumerate(trace.submitted()) if submit.request == found.request]
        widths = (_width_of_outputs(seen, number, trace) for seen in inputs for number in numbers)
        return found.reference is not None and trace.spec.is_aligned and any(widths)
    request = int(found.request.removeprefix("submit "))
    before = [seen for seen in inputs if seen.step < found.step and request in seen.requests]
    width = _width_of_outputs(before[-1], request, trace) if before else 0
    kept = (found.expected, found.actual)
    return width > 0 and kept == (fact("behind_kept", kept=width), fact("behind_kept", kept=1))


def _width_of_outputs(inputs: Observation, request: int, trace: Trace) -> int:
    """Return how many outputs a step computes again of a request, 0 if they are none that could be drafts."""
    if request not in inputs.requests:
        return 0
    row, starts = inputs.requests.index(request), inputs.values["starts"]
    width: int = starts[row + 1] - starts[row]
    submit = trace.submitted()[request]
    # How long a prompt is that goes on from another's output is not said in a trace.
    is_behind = isinstance(submit.prompt, Continuation) or _first(inputs, request) >= submit.prompt_length
    is_short = 1 < width <= 1 + trace.spec.num_speculative_tokens and not inputs.values["drafts"][row]
    return width if is_behind and is_short else 0


def _first(inputs: Observation, request: int) -> int:
    """Return the position of a request's first token in a step."""
    first: int = inputs.values["positions"][inputs.values["starts"][inputs.requests.index(request)]]
    return first


_PADDED_PROMPTS = KnownBug(
    "vllm_padded_prompts_of_one_token",
    "findings/vllm_padded_prompts_of_one_token/README.md",
    "vLLM 0.32.0 pads a one-token prompt with draft placeholders that stay in its recurrent state.",
)
BUGS_OF_FIRST: Mapping[KnownBug, Callable[[Difference, Trace, Sequence[Observation]], bool]] = {
    KnownBug(
        "vllm_accepted_counts_moved",
        "https://github.com/vllm-project/vllm/issues/51571",
        "vLLM 0.32.0 moves accepted counts with their rows, but reads them at the rows' old indices.",
    ): _counts_moved,
    KnownBug(
        "vllm_accepted_counts_skipped_steps",
        "findings/vllm_accepted_counts_skipped_steps/README.md",
        "vLLM 0.32.0 loses a request's accepted count after a step without that request.",
    ): _counts_of_skipped_steps,
    _PADDED_PROMPTS: _of_padded_prompts,
    KnownBug(
        "vllm_padded_prompts_go_on",
        "findings/vllm_padded_prompts_go_on/README.md",
        "vLLM 0.32.0 runs a padded one-token prompt as a decode and resumes the old content of its state block.",
    ): _verified_at_once,
    KnownBug(
        "vllm_resumed_outputs_verified",
        "findings/vllm_resumed_outputs_verified/README.md",
        "vLLM 0.32.0 treats output tokens recomputed after a preemption as drafts and keeps the first one's state.",
    ): _outputs_verified,
}
BUGS_OF_SECOND: Mapping[KnownBug, Callable[[Difference, Trace, Sequence[Observation]], bool]] = {
    KnownBug(
        "vllm_v2_states_behind_prompts",
        "findings/vllm_v2_states_behind_prompts/README.md",
        "vLLM 0.32.0 runs a decode as a prefill after a prefill chunk of 1 + K tokens and reads an older state.",
    ): _behind_prompts,
    _PADDED_PROMPTS: _of_padded_prompts,
}


def _hang_of_states_in_flight(trace: Trace, probes: Mapping[str, int]) -> bool:
    """Tell whether a request is preempted again and again whose pool has not room for three states of each group.

    Two are all that vLLM counts. What shows logprobs of its prompt finds nothing of it, and begins anew.
    """
    spec = trace.spec
    if spec.depth == 1 or spec.layers != "hybrid" or not spec.prefix_cache or spec.match_tokens:
        return False
    if probes.get("preemption_by_blocks", 0) < _PREEMPTIONS:
        return False
    shown = [submit for submit in trace.submits() if submit.params.num_prompt_logprobs]
    blocks = [spec.blocks_needed(submit.prompt_length, submit.max_tokens) for submit in shown]
    # It has come to a third end of a block.
    return any(count > 2 and count + RECURRENT_LAYERS > spec.num_blocks for count in blocks)


# Of a trace that made no progress, and what was counted of it.
HANGS: Mapping[KnownBug, Callable[[Trace, Mapping[str, int]], bool]] = {
    KnownBug(
        "vllm_states_in_flight",
        "findings/vllm_states_in_flight/README.md",
        "vLLM 0.32.0 reserves two recurrent states per request, but needs a third with a step in flight.",
    ): _hang_of_states_in_flight,
}

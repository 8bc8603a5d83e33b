"""Known bugs of vLLM's graphs: see `known`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from scenarios.drafters import drafters_where
from scenarios.events import Continuation
from scenarios.trace import Trace
from workers.record.evidence import Difference, Fact
from workers.record.observation import Observation
from workers.targets.target import KnownBug
from workers.targets.vllm.engine_sizes import largest_graph

# Drafters with a model, whose pass vLLM launches as a graph where it does the target's.
_MODELS = drafters_where(lambda traits: traits.has_positions)


def _prompt_in_a_decode_graph(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a request of a hybrid model was in a step of rows as wide as decodes, one of which was a prompt's.

    A graph of decodes takes that for one, and finds none of the step's states, as it holds a prompt. Decodes have one
    token each, or one and a run of drafts. One token behind others is computed as a decode is, whatever it is of.
    What such a step leaves in the prefix cache is wrong for whoever finds it there.
    """
    is_of_graphs = trace.spec.layers == "hybrid" and "full" in trace.spec.graphs
    if not is_of_graphs or (found.reference is None and not found.is_kept_elsewhere):
        return False
    names = [submit.request for submit in trace.submitted()]
    wrong = [seen for seen in steps if seen.point == "inputs" and _is_wrong(seen, trace)]
    if any(names[number] == found.request for seen in wrong for number in seen.requests):
        return True
    found_there = [(step, of) for step, number, of in _hits(steps) if names[number] == found.request]
    return any(seen.step < step and set(of) & set(seen.requests) for step, of in found_there for seen in wrong)


def _is_wrong(inputs: Observation, trace: Trace) -> bool:
    return _looks_like_decodes(inputs, trace) and _has_prompt(inputs, trace)


def _hits(steps: Sequence[Observation]) -> Iterator[tuple[int, int, Sequence[int]]]:
    """Yield each step in which a request begins behind a hit, that request, and whose tokens began with those found."""
    tokens: dict[int, Sequence[int]] = {}
    for plan in (seen for seen in steps if seen.point == "scheduled"):
        computed = dict(zip(plan.requests, plan.values["scheduled_computed"], strict=True))
        for request, known in plan.values["begun"]:
            hit = known[: computed.get(request, 0)]
            having = [other for other, its_own in tokens.items() if hit and its_own[: len(hit)] == hit]
            yield plan.step, request, having
            tokens[request] = known


def _looks_like_decodes(inputs: Observation, trace: Trace) -> bool:
    """Tell whether all rows of a step are as wide as decodes without drafts, or all as decodes with a run of them."""
    return set(_widths(inputs)) in ({1}, {1 + trace.spec.num_speculative_tokens})


def _has_prompt(inputs: Observation, trace: Trace) -> bool:
    """Tell whether a row of a step begins, or goes on with its prompt by more than one token."""
    starts, positions, drafts = (inputs.values[name] for name in ("starts", "positions", "drafts"))
    for request, start, width, num_drafts in zip(inputs.requests, starts, _widths(inputs), drafts, strict=False):
        submit, first = trace.submitted()[request], positions[start]
        # How long a prompt is that goes on from another's output is not said in a trace.
        is_of_prompt = isinstance(submit.prompt, Continuation) or first < submit.prompt_length
        if first == 0 or (width > 1 and not num_drafts and is_of_prompt):
            return True
    return False


def _widths(inputs: Observation) -> list[int]:
    return [stop - start for start, stop in pairwise(inputs.values["starts"])]


def _logprobs_behind_drafts(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether logprobs of a prompt are others, of a token behind one that a step in a graph computed.

    Of such a step the drafter's model has drafted before they are computed, and its graphs share memory with that one.
    """
    spec, expected = trace.spec, found.expected
    is_of_context = found.variable == "same_context"
    at = expected.values.get("place") if is_of_context and isinstance(expected, Fact) else found.position
    is_beside = spec.graphs != "none" and spec.num_speculative_tokens > 0 and spec.drafter in _MODELS
    is_other = (found.plane, found.variable) == ("logits", "prompt_logprobs") and found.reference is not None
    # Either of two requests may be the one whose logits are wrong.
    is_of_two = (found.plane, found.variable) == ("contracts", "same_context") and found.is_kept_elsewhere
    if not (is_beside and (is_other or is_of_two) and isinstance(at, int)):
        return False
    asking = [
        number
        for number, submit in enumerate(trace.submitted())
        if submit.params.num_prompt_logprobs and (is_of_two or submit.request == found.request)
    ]
    inputs = (seen for seen in steps if seen.point == "inputs" and seen.values["starts"][-1] <= largest_graph(spec))
    return any(at - 1 in _positions(seen, number) for seen in inputs for number in asking)


def _positions(inputs: Observation, request: int) -> Sequence[int]:
    """Return the positions of a request's tokens in a step."""
    if request not in inputs.requests:
        return ()
    row, starts = inputs.requests.index(request), inputs.values["starts"]
    positions: Sequence[int] = inputs.values["positions"][starts[row] : starts[row + 1]]
    return positions


BUGS_OF_FIRST: Mapping[KnownBug, Callable[[Difference, Trace, Sequence[Observation]], bool]] = {
    KnownBug(
        "vllm_prompt_in_a_decode_graph",
        "https://github.com/vllm-project/vllm/issues/57720",
        "vLLM 0.32.0 replays a graph of decodes for a prompt of one token, whose state is another request's.",
    ): _prompt_in_a_decode_graph,
    KnownBug(
        "vllm_prompt_logprobs_behind_drafts",
        "https://github.com/vllm-project/vllm/issues/53488",
        "vLLM 0.32.0 computes logprobs of a prompt from memory that the graphs of its drafter have written over.",
    ): _logprobs_behind_drafts,
}

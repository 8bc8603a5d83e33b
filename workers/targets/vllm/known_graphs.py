"""Known bugs of vLLM's graphs: see `known`."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from scenarios.events import Continuation
from scenarios.trace import Trace
from workers.record.evidence import Difference
from workers.record.observation import Observation
from workers.targets.target import KnownBug


def _prompt_in_a_decode_graph(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a request of a hybrid model was in a step of rows as wide as decodes, one of which was a prompt's.

    A graph of decodes takes that for one, and finds none of the step's states, as it holds a prompt. Decodes have one
    token each, or one and a run of drafts. One token behind others is computed as a decode is, whatever it is of.
    """
    is_of_graphs = trace.spec.layers == "hybrid" and "full" in trace.spec.graphs
    if not is_of_graphs or (found.reference is None and not found.is_kept_elsewhere):
        return False
    names = [submit.request for submit in trace.submitted()]
    inputs = [seen for seen in steps if seen.point == "inputs" and found.request in [names[n] for n in seen.requests]]
    return any(_looks_like_decodes(seen, trace) and _has_prompt(seen, trace) for seen in inputs)


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


BUGS_OF_FIRST: Mapping[KnownBug, Callable[[Difference, Trace, Sequence[Observation]], bool]] = {
    KnownBug(
        "vllm_prompt_in_a_decode_graph",
        "https://github.com/vllm-project/vllm/issues/57720",
        "vLLM 0.32.0 replays a graph of decodes for a prompt of one token, whose state is another request's.",
    ): _prompt_in_a_decode_graph,
}

"""Known bugs of vLLM's graphs: see `known`."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from scenarios.trace import Trace
from workers.record.evidence import Difference
from workers.record.observation import Observation
from workers.targets.target import KnownBug


def _prompt_in_a_decode_graph(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a request of a hybrid model was in a step of rows as wide as decodes, one of which began its prompt.

    A graph of decodes takes that for one, and finds none of the step's states, as it holds a prompt. Decodes have one
    token each, or one and a run of drafts.
    """
    is_of_graphs = trace.spec.layers == "hybrid" and "full" in trace.spec.graphs
    if not is_of_graphs or (found.reference is None and not found.is_kept_elsewhere):
        return False
    submits = trace.submitted()
    for seen in steps:
        if seen.point != "inputs":
            continue
        starts, positions = seen.values["starts"], seen.values["positions"]
        widths = {stop - start for start, stop in pairwise(starts)}
        is_uniform = widths in ({1}, {1 + trace.spec.num_speculative_tokens})
        names = [submits[request].request for request in seen.requests]
        begins = any(positions[start] == 0 for start in starts[: len(names)])
        if is_uniform and begins and found.request in names:
            return True
    return False


BUGS_OF_FIRST: Mapping[KnownBug, Callable[[Difference, Trace, Sequence[Observation]], bool]] = {
    KnownBug(
        "vllm_prompt_in_a_decode_graph",
        "https://github.com/vllm-project/vllm/issues/57720",
        "vLLM 0.32.0 replays a graph of decodes for a prompt of one token, whose state is another request's.",
    ): _prompt_in_a_decode_graph,
}

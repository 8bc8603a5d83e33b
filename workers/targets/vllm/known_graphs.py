"""Known bugs of vLLM's graphs: see `known`."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from scenarios.drafters import drafters_where
from scenarios.events import Continuation
from scenarios.trace import Trace
from workers.record.evidence import Difference, Fact
from workers.record.observation import Observation
from workers.targets.target import KnownBug
from workers.targets.vllm.engine_sizes import graph_sizes, largest_graph

# Drafters with a model, whose pass vLLM launches as a graph where it does the target's.
_MODELS = drafters_where(lambda traits: traits.has_positions)
# Which no row has a state in.
_NULL_BLOCK = 0


def _prompt_in_a_decode_graph(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a request of a hybrid model was in a step of rows as wide as decodes, one of which was a prompt's.

    A graph of decodes takes that for one, and finds none of the step's states, as it holds a prompt. Decodes have one
    token each, or one and a run of drafts. One token behind others is computed as a decode is, whatever it is of.
    What such a step leaves in the prefix cache is wrong for whoever finds it there.
    """
    if not _is_of_states_in_graphs(found, trace):
        return False
    wrong = [(seen.step, seen.requests) for seen in steps if seen.point == "inputs" and _is_wrong(seen, trace)]
    return _is_behind(found, trace, steps, wrong)


def _dummy_step_in_a_prompt(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a request goes on from a state that a dummy step has advanced, or finds what one left that does.

    That is one whose slot was left in the graphs, and was not handed out again since.
    """
    if not _is_of_states_in_graphs(found, trace):
        return False
    wrong: list[tuple[int, Sequence[int]]] = []
    for replay in _dummy_replays(trace, steps):
        if replay.is_stale:
            wrong += _going_on(_plans_behind(replay.step, steps), replay.slots)
    return _is_behind(found, trace, steps, wrong)


def _dummy_step_of_kept_requests(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a request was in a row of a dummy step while a pause kept it, and goes on behind that."""
    if not _is_of_states_in_graphs(found, trace):
        return False
    wrong: list[tuple[int, Sequence[int]]] = []
    for replay in _dummy_replays(trace, steps):
        plans = _plans_behind(replay.step, steps)
        if replay.is_kept and not replay.is_stale:
            wrong.append((replay.step, [request for request in replay.requests if _computed_next(request, plans)]))
    return _is_behind(found, trace, steps, wrong)


def _plans_behind(step: int, steps: Sequence[Observation]) -> Sequence[Observation]:
    return sorted(
        (seen for seen in steps if seen.point == "scheduled" and seen.step > step), key=lambda plan: plan.step
    )


def _computed_next(request: int, plans: Sequence[Observation]) -> int:
    """Return how many tokens a request has computed when it is planned next, 0 if it is not."""
    plan = next((plan for plan in plans if request in plan.requests), None)
    return plan.values["scheduled_computed"][plan.requests.index(request)] if plan is not None else 0


def _going_on(plans: Sequence[Observation], slots: Sequence[Collection[int]]) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield each step, and its requests that go on with slots, by group of layers, that nobody was handed meanwhile."""
    left = [set(of_group) for of_group in slots]
    for plan in plans:
        left = [of_group.difference(plan.values["taken"]) for of_group in left]
        computed = dict(zip(plan.requests, plan.values["scheduled_computed"], strict=True))
        states = {request: groups for request, groups in plan.values["states"] if computed.get(request)}
        yield (
            plan.step,
            [
                request
                for request, groups in states.items()
                if any(of_group.intersection(own) for of_group, own in zip(left, groups, strict=False))
            ],
        )


@dataclass(frozen=True, slots=True)
class _DummyReplay:
    """A replay of a graph of decodes by a dummy step, behind the last step that was planned.

    Its slots, by group of layers, are those that the graph was last given, if they are stale: they are not given anew
    where one of its rows is a prompt's, by the counts of whoever had that place last. Else they are those of requests
    that are in the batch, which is empty but while a pause keeps them.
    """

    step: int
    slots: Sequence[Collection[int]]
    requests: Sequence[int]
    is_stale: bool
    is_kept: bool


def _dummy_replays(trace: Trace, steps: Sequence[Observation]) -> Iterator[_DummyReplay]:
    spec = trace.spec
    num_rows = -(-graph_sizes(spec)[0] // (1 + spec.num_speculative_tokens))
    # Rows of gated delta nets begin only if they have tokens, and verify drafts where there are any.
    num_told = num_rows if spec.recurrent_layers == "short_conv" else int(not spec.num_speculative_tokens)
    in_prompt: dict[int, bool] = {}
    slots: Sequence[Collection[int]] = ()
    requests: Sequence[int] = ()
    is_kept = False
    told = (seen for seen in steps if seen.point in ("inputs", "controlled"))
    # Inputs may be told of later than what came behind their step.
    for seen in sorted(told, key=lambda seen: (seen.step, seen.point != "inputs")):
        if seen.point == "inputs":
            requests = seen.requests[:num_rows]
            in_prompt |= {row: _is_in_prompt(seen, row, trace) for row in range(len(seen.requests))}
            if not any(any(values) for name, values in seen.values.items() if name.startswith("whole_")):
                slots = _slots(seen, num_rows)
        elif seen.values["what"] in ("pause_keep", "resume"):
            is_kept = seen.values["what"] == "pause_keep"
        elif seen.values["what"] == "dummy_step":
            is_stale = any(in_prompt.get(row) for row in range(num_told))
            yield _DummyReplay(seen.step, slots, requests, is_stale, is_kept)
            slots = slots if is_stale else ()


def _slots(inputs: Observation, num_rows: int) -> Sequence[Collection[int]]:
    """Return the slots of the first rows of a step, by group of layers."""
    groups = sorted(name for name in inputs.values if name.startswith("states_"))
    return [set(inputs.values[name][:num_rows]) - {_NULL_BLOCK} for name in groups]


def _is_of_states_in_graphs(found: Difference, trace: Trace) -> bool:
    """Tell whether outputs of a hybrid model whose decodes are graphs are unlike those of another run."""
    is_of_graphs = trace.spec.layers == "hybrid" and "full" in trace.spec.graphs
    return is_of_graphs and (found.reference is not None or found.is_kept_elsewhere)


def _is_behind(
    found: Difference, trace: Trace, steps: Sequence[Observation], wrong: Sequence[tuple[int, Collection[int]]]
) -> bool:
    """Tell whether a request was in a wrong step, or finds in the prefix cache what one of such a step began with."""
    names = [submit.request for submit in trace.submitted()]
    if any(names[number] == found.request for _, requests in wrong for number in requests):
        return True
    found_there = [(step, of) for step, number, of in _hits(steps) if names[number] == found.request]
    return any(at < step and set(of) & set(requests) for step, of in found_there for at, requests in wrong)


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
    for row, (width, num_drafts) in enumerate(zip(_widths(inputs), drafts, strict=False)):
        if positions[starts[row]] == 0 or (width > 1 and not num_drafts and _is_in_prompt(inputs, row, trace)):
            return True
    return False


def _is_in_prompt(inputs: Observation, row: int, trace: Trace) -> bool:
    """Tell whether the first token of a row is one of a prompt."""
    submit = trace.submitted()[inputs.requests[row]]
    first: int = inputs.values["positions"][inputs.values["starts"][row]]
    # How long a prompt is that goes on from another's output is not said in a trace.
    return isinstance(submit.prompt, Continuation) or first < submit.prompt_length


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
        "vLLM 0.32.0 replays a decode graph for a one-token prompt, which resumes another request's recurrent state.",
    ): _prompt_in_a_decode_graph,
    KnownBug(
        "vllm_dummy_step_in_a_prompt",
        "findings/vllm_dummy_step_in_a_prompt/README.md",
        "vLLM 0.32.0 lets a dummy step advance the recurrent state of a request in chunked prefill.",
    ): _dummy_step_in_a_prompt,
    KnownBug(
        "vllm_dummy_step_of_kept_requests",
        "findings/vllm_dummy_step_of_kept_requests/README.md",
        "vLLM 0.32.0 lets a dummy step advance the recurrent states of requests that a pause keeps.",
    ): _dummy_step_of_kept_requests,
    KnownBug(
        "vllm_prompt_logprobs_behind_drafts",
        "https://github.com/vllm-project/vllm/issues/53488",
        "vLLM 0.32.0 computes prompt logprobs from hidden states that the drafter's CUDA graphs have overwritten.",
    ): _logprobs_behind_drafts,
}

"""Known bugs of vLLM's staging: pinned memory that the host writes again before the device has copied it. See `known`.

Verifies: crashes of that, by the place, and by steps before it in which nothing makes the host wait; outputs that a
late device alone gives.
Does not verify: which token, or which start of a row, the device was given.
"""

from collections.abc import Callable, Mapping, Sequence

from scenarios.drafters import drafters_where
from scenarios.events import DummyStep
from scenarios.trace import Trace
from workers.record.evidence import Difference, Site
from workers.record.observation import Observation
from workers.record.rules import Reference
from workers.targets.target import KnownBug

_EMBEDDING = "in the task index_select of stream 0, launched at vllm/model_executor/layers/vocab_parallel_embedding.py"
# Drafters that are given a next token of each request.
_GIVEN_TOKENS = drafters_where(lambda traits: traits.has_positions)


def _backup_tokens(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a row whose sample was discarded got the backup token of its place in the step behind it."""
    if found.variable != "draft_input_ids" or trace.schedule.policy == "eager":
        return False
    inputs = {seen.step: seen.requests for seen in steps if seen.point == "inputs"}
    here, behind = inputs.get(found.step, ()), inputs.get(found.step + 1, ())
    place = next((place for place, number in enumerate(here) if f"submit {number}" == found.request), None)
    if place is None or place >= len(behind):
        return False
    sampled: dict[int, dict[int, list[int]]] = {
        seen.step: dict(zip(seen.requests, seen.values["sampled"], strict=True))
        for seen in steps
        if seen.point == "processed"
    }
    if sampled.get(found.step, {}).get(here[place]):
        return False
    prompt = trace.submitted()[behind[place]].prompt
    given = [token for of_step in sampled.values() for token in of_step.get(behind[place], [])]
    # A row that is not discarded has no backup token.
    return found.actual in (-1, *given, *(prompt[-1:] if isinstance(prompt, tuple) else ()))


def _crash_of_backup_tokens(error: str, where: Site, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether an embedding is given what is no token, behind a step whose discarded row may have got it.

    Nobody had drafts in that step, for whose counts the host would wait, and a request that it sampled for is planned
    in the step behind it: its token is in flight then, and -1 stands for it.
    """
    is_there = error.startswith("IndexError: index out of range") and _EMBEDDING in error
    has_drafter = trace.spec.num_speculative_tokens > 0 and trace.spec.drafter in _GIVEN_TOKENS
    if not (is_there and has_drafter) or trace.spec.depth == 1 or trace.schedule.policy == "eager":
        return False
    last = next((seen for seen in reversed(steps) if seen.point == "inputs"), None)
    if last is None or any(last.values["drafts"]):
        return False
    lengths = {
        number: len(tokens)
        for seen in steps
        if (seen.of, seen.point) == (last.of, "scheduled") and seen.step <= last.step
        for number, tokens in seen.values["begun"]
    }
    starts, positions = last.values["starts"], last.values["positions"]
    sampled = {
        request: bool(positions[starts[row + 1] - 1] + 1 >= lengths.get(request, 0))
        for row, request in enumerate(last.requests)
    }
    next_plan = (last.of, "scheduled", last.step + 1)
    behind = [seen.requests for seen in steps if (seen.of, seen.point, seen.step) == next_plan]
    return not all(sampled.values()) and any(sampled.get(request) for requests in behind for request in requests)


def _crash_of_a_dummy_step(error: str, where: Site, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a kernel of a dummy step is given rows of the step behind it, which are more than it has tokens.

    Of that step, and it alone, no inputs were seen.
    """
    is_there = error.startswith("KernelError: _causal_conv1d_update_kernel: it uses value ")
    # Of short convolutions it is the model's own operator.
    is_there |= (where.function, where.file) == ("_drafts_convolved", "hybrid.py") and "expanded size" in error
    if not is_there or not _is_late_beside_dummy_steps(trace) or not trace.spec.num_speculative_tokens:
        return False
    planned = max((seen.step for seen in steps if seen.point == "scheduled"), default=-1)
    return planned >= 0 and not any(seen.point == "inputs" and seen.step >= planned for seen in steps)


def _outputs_beside_a_dummy_step(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a state is what a dummy step that was given rows of the step behind it made of it.

    Without asynchronous scheduling an engine that is late is held against itself where it is not, whose races are told.
    """
    if trace.spec.layers != "hybrid" or not _is_late_beside_dummy_steps(trace):
        return False
    return found.plane in ("tokens", "logits") and found.reference is Reference.SYNCHRONOUS


def _is_late_beside_dummy_steps(trace: Trace) -> bool:
    """Tell whether inputs of dummy steps are copied late, for graphs of whole steps, and nobody waits for that."""
    is_late = trace.spec.depth == 1 and trace.schedule.policy != "eager" and "full" in trace.spec.graphs
    return is_late and any(isinstance(event, DummyStep) for event in trace.events)


_BACKUP_TOKENS = KnownBug(
    "vllm_backup_tokens_staging",
    "findings/vllm_backup_tokens_staging/README.md",
    "vLLM 0.32.0 overwrites backup tokens in pinned memory while the copy of the step before is in flight.",
)
_DUMMY_STEP_INPUTS = KnownBug(
    "vllm_dummy_step_inputs",
    "findings/vllm_dummy_step_inputs/README.md",
    "vLLM 0.32.0 without async scheduling overwrites a dummy step's inputs in pinned memory during their copy.",
)
BUGS_OF_FIRST: Mapping[KnownBug, Callable[[Difference, Trace, Sequence[Observation]], bool]] = {
    _BACKUP_TOKENS: _backup_tokens,
    _DUMMY_STEP_INPUTS: _outputs_beside_a_dummy_step,
}
CRASHES_OF_FIRST: Mapping[KnownBug, Callable[[str, Site, Trace, Sequence[Observation]], bool]] = {
    _BACKUP_TOKENS: _crash_of_backup_tokens,
    _DUMMY_STEP_INPUTS: _crash_of_a_dummy_step,
}

"""Known bugs of vLLM beside layers with sliding windows, by what a run shows of them."""

from collections.abc import Callable, Mapping, Sequence

from scenarios.trace import Trace
from workers.record.evidence import Difference
from workers.record.observation import Observation
from workers.targets.target import KnownBug

# What is computed from what a drafter has written over.
_PLANES = ("drafts", "tokens", "logits", "contracts")


def _slots_of_the_first_group(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a draft model has been given slots in blocks that its request has for windows."""
    if trace.spec.drafter != "draft_model" or found.plane not in _PLANES:
        return False
    plans = {seen.step: seen for seen in steps if seen.point == "scheduled"}
    passes = (seen for seen in steps if (seen.point, seen.values.get("index")) == ("drafting", 0))
    sizes = next((seen.values["windows"] for seen in steps if seen.point == "opened"), ())
    return any(_is_in_windows(each, plans[each.step], sizes[0][0]) for each in passes if sizes)


def _is_in_windows(drafting: Observation, plan: Observation, size: int) -> bool:
    held = {block for _, groups in plan.values["windows"] for block in groups[0]}
    return any(slot >= 0 and slot // size in held for slot in drafting.values["slots"])


BUGS_OF_FIRST: Mapping[KnownBug, Callable[[Difference, Trace, Sequence[Observation]], bool]] = {
    KnownBug(
        "vllm_draft_model_first_group",
        "findings/vllm_draft_model_first_group/README.md",
        "vLLM 0.32.0 passes a draft model the slot mapping of the first KV cache group instead of its own.",
    ): _slots_of_the_first_group,
}

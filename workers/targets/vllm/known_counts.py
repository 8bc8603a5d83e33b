"""Known bugs of vLLM's counts of tokens by row, by the crashes they end in and the plans before."""

from collections.abc import Callable, Mapping, Sequence

from scenarios.trace import Trace
from workers.record.evidence import Site
from workers.record.observation import Observation
from workers.targets.target import KnownBug

_TOO_LONG = "AssertionError: Sampled token IDs exceed the max model length."
_NO_ROOM = "ValueError: could not broadcast input array from shape"


def _optimistic_rows(error: str, where: Site, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a row has no room for what was planned within the model's length, beside who needs output tokens.

    A row counts at most the drafts of one step too many.
    """
    place = (where.function, where.file)
    is_there = place == ("_bookkeeping_sync", "gpu_model_runner.py") and error.startswith(_TOO_LONG)
    is_there |= place == ("update_req_spec_token_ids", "gpu_input_batch.py") and error.startswith(_NO_ROOM)
    drafts, last = trace.spec.num_speculative_tokens, trace.spec.max_model_len - 1
    if not is_there or trace.spec.depth == 1 or not drafts:
        return False
    # The last plan may be the one behind the step that ended.
    plans = [seen for seen in steps if seen.point == "scheduled"][-2:]
    params = [trace.submitted()[number].params for plan in plans for number in plan.requests]
    rows = [
        (computed, planned)
        for plan in plans
        for computed, planned in zip(plan.values["scheduled_computed"], plan.values["planned_drafts"], strict=True)
    ]
    is_planned_within = all(computed + 1 + planned <= last for computed, planned in rows)
    is_near = any(computed + drafts + max(planned, 1) > last for computed, planned in rows)
    return is_planned_within and is_near and any(each.has_penalties or each.bad_words for each in params)


CRASHES_OF_FIRST: Mapping[KnownBug, Callable[[str, Site, Trace, Sequence[Observation]], bool]] = {
    KnownBug(
        "vllm_optimistic_rows",
        "findings/vllm_optimistic_rows/README.md",
        "vLLM 0.32.0 counts rejected drafts in a row's length when another request of the batch has penalties.",
    ): _optimistic_rows,
}

"""Faults in scheduling: token budget, draft tokens, placeholders, state slots."""

from dataclasses import replace

from workers.engine.block_pool import Pool
from workers.engine.functions import EngineFunctions
from workers.engine.request import PlanRow, Request
from workers.faults.fault import Reached, fault, in_place_of


@fault(
    id="vllm-30916-drafts-survive",
    source="vllm PRs #30916 and #31955 (issue #31876)",
    symptom="a resumed request verifies draft tokens from before its preemption",
    trigger="a request with draft tokens is preempted, and its first step after resuming proposes none",
    plane="books",
)
def _drafts_survive_preemption(functions: EngineFunctions, reached: Reached) -> EngineFunctions:
    pending: dict[int, tuple[int, int]] = {}

    def drafts_after(row: PlanRow, k_step: int) -> int:
        index, found = row.request.index, functions.drafts_after(row, k_step)
        epoch, drafts = pending.get(index, (row.scheduled.epoch, 0))
        if found or epoch == row.scheduled.epoch:
            pending[index] = row.scheduled.epoch, found
            return found
        # Nothing was proposed since the request was resumed, so its earlier draft tokens are used, once.
        del pending[index]
        if drafts:
            reached()
        return drafts

    return replace(functions, drafts_after=drafts_after)


@fault(
    id="trtllm-16101-free-drafts",
    source="TensorRT-LLM PR #16101",
    symptom="a step computes more tokens than its budget",
    trigger="rows that verify draft tokens are scheduled as one token each, and others fill the budget",
    plane="books",
)
@in_place_of("budget_used")
def _drafts_cost_nothing(functions: EngineFunctions, reached: Reached, n: int, d: int) -> int:
    if d:
        reached()
    return functions.budget_used(n, d) - d


@fault(
    id="vllm-57562-chunk-before",
    source="vllm issue #57562 (unknown cause); here a cause that fits: a flag is one step old",
    symptom="a request counts no placeholder for a sampled token",
    trigger="the last prefill chunk of a prompt follows another chunk",
    plane="counts",
)
def _chunk_by_the_step_before(functions: EngineFunctions, reached: Reached) -> EngineFunctions:
    was_chunk: dict[int, tuple[int, bool]] = {}

    def placeholders_for(row: PlanRow) -> int:
        index, found = row.request.index, functions.placeholders_for(row)
        before = was_chunk.get(index)
        was_chunk[index] = row.scheduled.epoch, row.discard
        if before != (row.scheduled.epoch, True) or not found:
            return found
        reached()
        return 0

    return replace(functions, placeholders_for=placeholders_for)


@fault(
    id="ascend-9749-past-the-context",
    source="vllm-ascend PRs #9749 and #11544",
    symptom="a request is scheduled past the last position of the model",
    trigger="a request with K draft tokens comes within K tokens of the model's length",
    plane="books",
)
@in_place_of("room_for")
def _no_context_limit(
    functions: EngineFunctions, reached: Reached, request: Request, wanted: int, max_model_len: int
) -> int:
    found = functions.room_for(request, wanted, max_model_len)
    if found < wanted:
        reached()
    return wanted


@fault(
    id="lmdeploy-4691-slot-of-its-own",
    source="lmdeploy PR #4691",
    symptom="a request that needs a block preempts others although there are free blocks",
    trigger="all state slots are taken, and a running request needs one more block",
    plane="books",
    requires=(("layers", "hybrid"),),
)
@in_place_of("has_state")
def _state_slot_always_required(functions: EngineFunctions, reached: Reached, request: Request, slots: Pool) -> bool:
    if functions.has_state(request, slots) and not slots.num_free:
        reached()
    return slots.num_free > 0


@fault(
    id="sglang-26941-dangling-slot",
    source="sglang PR #26941",
    symptom="a resumed request uses its released state slot, which now has another owner or is free",
    trigger="a request is preempted and resumed",
    plane="blocks",
)
def _slot_is_kept_after_release(functions: EngineFunctions, reached: Reached) -> EngineFunctions:
    kept: dict[int, int] = {}

    def take_state_slot(request: Request, slots: Pool) -> int:
        if request.index in kept:
            reached()
            return kept[request.index]
        kept[request.index] = functions.take_state_slot(request, slots)
        return kept[request.index]

    return replace(functions, take_state_slot=take_state_slot)

"""Faults in recurrent (Mamba) states that are stored with KV-cache blocks.

Faults in device ops exist only on the NumPy tier.
"""

from dataclasses import replace

import numpy as np

from workers.engine.functions import EngineFunctions
from workers.engine.request import PlanRow, Request
from workers.faults.fault import Reached, fault, in_place_of, op_like
from workers.kernels.sentinels import PAD_BLOCK
from workers.kernels.state_copy.definition import StateCopy
from workers.kernels.state_restore.definition import StateRestore

ALIGNED = (("layers", "hybrid"), ("recurrent_cache", "align"))


@fault(
    id="mlxlm-1109-no-roll-back",
    source="mlx-lm PR #1109",
    symptom="the recurrent state stored with a block includes rejected draft tokens",
    trigger="a draft token is rejected: the cache of a recurrent layer cannot be trimmed, so it is not",
    plane="recurrent",
    requires=ALIGNED,
)
@in_place_of("state_copy")
def _rejected_tokens_stay(functions: EngineFunctions, reached: Reached, given: StateCopy) -> None:
    rejecting = (given.num_drafts > 0) & (given.accepted < 1 + given.num_drafts)
    if rejecting.any():
        reached()
    functions.state_copy(replace(given, accepted=np.where(rejecting, 1 + given.num_drafts, given.accepted)))


@fault(
    id="sglang-32555-counts-from-the-tail",
    source="sglang PR #32555",
    symptom="a block's recurrent state is stored by the accepted count of another row, or of padding",
    trigger="a padded batch: counts are written at the front of a buffer and read at its end",
    plane="recurrent",
    requires=(*ALIGNED, ("pad", True)),
)
@in_place_of("state_copy")
def _counts_from_the_tail(functions: EngineFunctions, reached: Reached, given: StateCopy) -> None:
    num_real = np.count_nonzero(given.state_slot >= 0)
    # Padding rows come last, so a slice that ends at the end of the buffer starts too late.
    shifted = given.accepted.copy()
    shifted[:num_real] = given.accepted[len(given.accepted) - num_real :]
    if (shifted != given.accepted).any():
        reached()
    functions.state_copy(replace(given, accepted=shifted))


@fault(
    id="vllm-55507-kept-by-another-size",
    source="vllm PR #55507, issue #53142, variant: the location of a stored state",
    symptom="a recurrent state is stored with the block of another position, or of another request",
    trigger="the block-table column of a state is computed with half the block size",
    plane="recurrent",
    requires=ALIGNED,
)
@in_place_of("state_copy")
def _columns_of_another_group(functions: EngineFunctions, reached: Reached, given: StateCopy) -> None:
    half = max(1, given.block_size // 2)
    if half < given.block_size:
        reached()
    # After a row's blocks its table has PAD_BLOCK, which as an index selects the last block of the pool.
    last = len(given.block_states) - 1
    table = np.where(given.block_table == PAD_BLOCK, last, given.block_table)
    functions.state_copy(replace(given, block_size=half, block_table=table))


@fault(
    id="vllm-55507-block-of-another-size",
    source="vllm PR #55507, issue #53142; in vLLM attention's block size, here half a block",
    symptom="a request continues from the recurrent state of a block that is not in its prefix-cache hit",
    trigger="a prefix-cache hit, and the column of its state is computed with another block size",
    plane="recurrent",
    requires=(*ALIGNED, ("prefix_cache", True), ("drafter", "eagle")),
)
@in_place_of("block_to_resume_from")
def _column_of_another_group(functions: EngineFunctions, reached: Reached, row: PlanRow, block_size: int) -> int:
    found = functions.block_to_resume_from(row, block_size)
    if found == PAD_BLOCK:
        return found
    blocks, column = row.request.blocks, (row.num_computed - 1) // max(1, block_size // 2)
    wrong = blocks[min(column, len(blocks) - 1)]
    if wrong != found:
        reached()
    return wrong


@fault(
    id="vllm-48132-count-of-the-last-owner",
    source="vllm PR #48132",
    symptom="a request reads a wrong state: the accepted count of its state slot is another request's",
    trigger="a prefix-cache hit with a state slot that another request used before",
    plane="counts",
    requires=(*ALIGNED, ("prefix_cache", True), ("drafter", "eagle"), ("accepted_counts", "device")),
)
@in_place_of("state_restore")
def _count_of_the_last_owner(functions: EngineFunctions, reached: Reached, given: StateRestore) -> None:
    before = given.slot_accepted.copy()
    functions.state_restore(given)
    if (given.slot_accepted != before).any():
        reached()
    given.slot_accepted[:] = before


@fault(
    id="vllm-32951-align-ahead",
    source="vllm PR #32951 (which disables align with async scheduling), reverted",
    symptom="a recurrent state is stored for a later position than its own",
    trigger="draft tokens are rejected, and the next step finds its blocks by the host's optimistic count",
    plane="recurrent",
    requires=(*ALIGNED, ("depth", 2)),
)
def _counts_of_the_host(functions: EngineFunctions, reached: Reached) -> EngineFunctions:
    rejected_before: dict[int, int] = {}

    def body(given: StateCopy) -> None:
        slots = given.state_slot.tolist()
        # At depth 2 the host does not know yet what the previous step rejected.
        ahead = np.array([rejected_before.get(slot, 0) for slot in slots], dtype=np.int64) * (given.num_computed > 0)
        if ahead.any():
            reached()
        rejected = np.where(given.num_drafts > 0, 1 + given.num_drafts - given.accepted, 0).tolist()
        rejected_before.clear()
        rejected_before.update((slot, count) for slot, count in zip(slots, rejected, strict=True) if slot >= 0)
        functions.state_copy(replace(given, num_computed=given.num_computed + ahead))

    return replace(functions, state_copy=op_like(functions.state_copy, body))


@fault(
    id="vllm-45477-unaligned-chunk",
    source="vllm PR #45477, issue #43559",
    symptom="the state in the middle of a prefill chunk, or no state, is stored for the end of a block",
    trigger="a prompt shorter than two blocks is computed past the end of its first block in one chunk",
    plane="books",
    requires=ALIGNED,
)
@in_place_of("clip_to_block")
def _short_prompts_are_not_clipped(
    functions: EngineFunctions, reached: Reached, request: Request, n: int, block_size: int
) -> int:
    clipped = functions.clip_to_block(request, n, block_size)
    # The bug clips at the last block boundary minus the block that a drafter recomputes: no clipping below two blocks.
    if len(request.tokens) // block_size > 1 or clipped == n:
        return clipped
    reached()
    return n


@fault(
    id="mlxlm-976-last-row",
    source="mlx-lm PR #976",
    symptom="the recurrent state of another request is stored with a block",
    trigger="a batch of two rows: the state stored for each row is the last row's",
    plane="recurrent",
    requires=ALIGNED,
)
@in_place_of("state_copy")
def _state_of_the_last_row(functions: EngineFunctions, reached: Reached, given: StateCopy) -> None:
    real = given.state_slot >= 0
    last = given.state_slot[real][-1:]
    if np.count_nonzero(real) > 1:
        reached()
    functions.state_copy(replace(given, state_slot=np.where(real, last, given.state_slot)))

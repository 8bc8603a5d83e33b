"""Faults in moving data with a batch row: draft tokens, block tables, state slots.

Those with draft tokens exist only on the NumPy tier.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from workers.engine.functions import EngineFunctions
from workers.engine.input_batch import Row
from workers.engine.memory import capture_size
from workers.engine.request import Request
from workers.faults.fault import Reached, fault, in_place_of
from workers.kernels.prepare_inputs.definition import PrepareInputs
from workers.kernels.sentinels import NO_DRAFT, PAD_STATE_SLOT


@fault(
    id="vllm-43434-draft-order",
    source="vllm PR #43434",
    symptom="a request verifies the draft tokens of another request",
    trigger="a row with draft tokens moves, and the previous step's draft tokens are read at its new row",
    plane="drafts",
)
@in_place_of("prepare_inputs")
def _drafts_in_current_order(functions: EngineFunctions, reached: Reached, given: PrepareInputs) -> None:
    functions.prepare_inputs(given)
    k = given.num_speculative_tokens
    (rows,) = np.nonzero(given.prev_position >= 0)
    if not k or not len(rows):
        return
    wanted = np.arange(k) < given.num_drafts[rows][:, None]
    proposed = np.where(wanted, given.draft_tokens.reshape(-1, k)[rows], NO_DRAFT)
    drafts = given.scheduled_drafts.reshape(-1, k)
    if np.array_equal(proposed, drafts[rows]):
        return
    reached()
    drafts[rows] = proposed
    first = (given.query_start + given.num_scheduled - given.num_drafts)[rows]
    given.input_ids[(first[:, None] + np.arange(k))[wanted]] = np.maximum(proposed[wanted], 0)


@fault(
    id="vllm-48419-swap-views",
    source="vllm PR #48419; in vLLM a mask of allowed tokens, here the block table",
    symptom="two requests share the block table of one of them",
    trigger="a reorder swaps two rows",
    plane="inputs",
)
@in_place_of("permute_rows")
def _swap_through_views(
    functions: EngineFunctions, reached: Reached, rows: list[Row], order: Sequence[int]
) -> list[Row]:
    wanted, swapped = functions.permute_rows(rows, order), list(rows)
    for index, row in enumerate(wanted):
        other = next(place for place, each in enumerate(swapped) if each is row)
        if other == index:
            continue
        swapped[index], swapped[other] = swapped[other], swapped[index]
        if swapped[other].blocks != row.blocks:
            reached()
            swapped[other].blocks = list(row.blocks)
    return swapped


@fault(
    id="tpu-2469-padded-slot",
    source="tpu-inference PR #2469",
    symptom="a padding row overwrites the recurrent state of a request",
    trigger="condense moves a row down, and its old row is padding in the next batch",
    plane="recurrent",
    requires=(("layers", "hybrid"), ("pad", True)),
)
def _vacated_rows_keep_their_slot(functions: EngineFunctions, reached: Reached) -> EngineFunctions:
    table: list[int] = []

    def pad_state_slots(rows: Sequence[Row], num_pads: int) -> Sequence[int]:
        if not rows:
            return functions.pad_state_slots(rows, num_pads)
        own = [row.plan.request.state_slot for row in rows]
        table[: len(own)] = own
        kept = table[len(own) : len(own) + num_pads]
        if set(own) & set(kept[: capture_size(len(own)) - len(own)]):
            reached()
        return kept + [PAD_STATE_SLOT] * (num_pads - len(kept))

    return replace(functions, pad_state_slots=pad_state_slots)


@fault(
    id="gaudi-1431-folded-padding",
    source="vllm-gaudi PR #1431",
    symptom="a padding row overwrites the recurrent state of a request",
    trigger="a padded batch: the padding slot, modulo the number of slots in use, belongs to a request",
    plane="recurrent",
    requires=(("layers", "hybrid"), ("pad", True)),
)
@in_place_of("pad_state_slots")
def _padding_folded_onto_a_slot(
    functions: EngineFunctions, reached: Reached, rows: Sequence[Row], num_pads: int
) -> Sequence[int]:
    if not rows:
        return functions.pad_state_slots(rows, num_pads)
    num_slots = 1 + max(row.plan.request.state_slot for row in rows)
    # A batch may already have its padded size; then there are no rows after it.
    if capture_size(len(rows)) > len(rows):
        reached()
    return [slot % num_slots for slot in functions.pad_state_slots(rows, num_pads)]


@fault(
    id="vllm-37728-stale-row",
    source="vllm PR #37728; in vLLM the row of a finished request, with a block that has a new owner",
    symptom="a step without requests overwrites the recurrent state of a request",
    trigger="a dummy step while the last request in row 0 is stalled: its row is not cleared",
    plane="recurrent",
    requires=(("layers", "hybrid"),),
)
def _row_is_not_cleared(functions: EngineFunctions, reached: Reached) -> EngineFunctions:
    first: list[tuple[Request, int]] = []

    def pad_state_slots(rows: Sequence[Row], num_pads: int) -> Sequence[int]:
        slots = functions.pad_state_slots(rows, num_pads)
        if rows:
            request = rows[0].plan.request
            first[:] = [(request, request.state_slot)]
            return slots
        for request, slot in first:
            if request.running and request.state_slot == slot:
                reached()
            return [slot, *slots[1:]]
        return slots

    return replace(functions, pad_state_slots=pad_state_slots)


@fault(
    id="trtllm-6136-padding-first",
    source="TensorRT-LLM PR #6136",
    symptom="a row's count is corrected by the rejected draft tokens of the row before it",
    trigger="a padded batch with padding first in the correction, and two rows that reject differently",
    plane="counts",
    requires=(("pad", True),),
)
@in_place_of("prepare_inputs")
def _padding_comes_first(functions: EngineFunctions, reached: Reached, given: PrepareInputs) -> None:
    rows = np.flatnonzero(given.prev_position >= 0)
    previous = given.prev_position[rows]
    corrections = np.zeros(1 + len(given.prev_position), dtype=np.int64)
    corrections[1 + rows] = given.prev_valid[previous] - 1 - given.prev_num_drafts[previous]
    wrong = given.prev_valid.copy()
    if (given.num_scheduled == 0).any():
        wrong[previous] = corrections[rows] + 1 + given.prev_num_drafts[previous]
    if not np.array_equal(wrong, given.prev_valid):
        reached()
    functions.prepare_inputs(replace(given, prev_valid=wrong))

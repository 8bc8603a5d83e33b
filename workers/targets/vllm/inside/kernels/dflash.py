"""NumPy definition of the drafter-input kernel in `...gpu.spec_decode.dflash.speculator`."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from workers.simulated_torch.kernel_definitions import Array, Definition, Given

MODULE = "vllm.v1.worker.gpu.spec_decode.dflash.speculator"


def prepare_dflash_inputs(programs: tuple[int, ...], given: Given) -> None:
    """Write the context tokens' slots, and each row's queries: the next token, then mask tokens."""
    num_rows, reach = programs[0], programs[1] * given.BLOCK_SIZE
    num_queries, shift = given.num_query_per_req, 0 if given.SAMPLE_FROM_ANCHOR else 1
    for row in range(num_rows):
        state, start = given.idx_mapping_ptr[row], given.target_query_start_loc_ptr[row]
        count = given.target_query_start_loc_ptr[row + 1] - start
        valid = count - given.num_rejected_ptr[row]
        tokens = given.last_sampled_ptr if given.num_sampled_ptr[row] > 0 else given.next_prefill_tokens_ptr
        last = given.target_positions_ptr[start + valid - 1]

        seen, kept = min(count, reach), max(0, min(valid, reach))
        positions = given.target_positions_ptr.span(start, kept)
        given.out_context_positions_ptr.span(start, seen)[:] = 0
        given.out_context_slot_mapping_ptr.span(start, seen)[:] = given.PAD_SLOT_ID
        given.out_context_positions_ptr.span(start, kept)[:] = positions
        given.out_context_slot_mapping_ptr.span(start, kept)[:] = _slots(given, row, positions)

        offsets = np.arange(max(0, -valid), min(num_queries, reach - valid))
        queries, places = row * num_queries + offsets, last + 1 + offsets
        ids = np.where(offsets == 0, np.int64(tokens[state]).astype(np.int32), given.parallel_drafting_token_id)
        given.out_input_ids_ptr.put(queries, ids)
        if hasattr(given, "out_is_padding_ptr"):
            given.out_is_padding_ptr.put(queries, False)
        given.out_query_positions_ptr.put(queries, np.minimum(places, given.max_model_len - 1))
        given.out_query_slot_mapping_ptr.put(queries, _slots(given, row, places))
        is_drawn = offsets >= shift
        drawn = row * given.num_speculative_steps + offsets[is_drawn] - shift
        given.out_sample_indices_ptr.put(drawn, queries[is_drawn])
        given.out_sample_pos_ptr.put(drawn, places[is_drawn] + 1 - shift)
        given.out_sample_idx_mapping_ptr.put(drawn, state)

        given.out_query_start_loc_ptr[row] = row * num_queries
        given.out_seq_lens_ptr[row] = min(last + 1 + num_queries, given.max_model_len)
        given.out_temperature_ptr[state] = given.temperature_ptr[state]
        given.out_seeds_ptr[state] = given.seeds_ptr[state]
    if num_rows and reach:
        _pad(num_rows, given)


def _slots(given: Given, row: int, positions: Array) -> Array:
    """Return the slot of each position of a row; positions in the null block get PAD_SLOT_ID."""
    stride = given.block_table_stride
    table = given.block_table_ptr.at(row * stride + np.minimum(positions // given.block_size, stride - 1))
    blocks = table.astype(np.int64)
    slots: Array = np.where(blocks != 0, blocks * given.block_size + positions % given.block_size, given.PAD_SLOT_ID)
    return slots


def _pad(num_rows: int, given: Given) -> None:
    """Fill the padding rows: sequence length 0, no row to sample, slots PAD_SLOT_ID."""
    rows, steps, queries = given.max_num_reqs - num_rows, given.num_speculative_steps, given.num_query_per_req
    given.out_query_start_loc_ptr.span(num_rows, rows + 1)[:] = num_rows * queries
    given.out_seq_lens_ptr.span(num_rows, rows)[:] = 0
    for out, value in (
        (given.out_sample_indices_ptr, 0),
        (given.out_sample_pos_ptr, 0),
        (given.out_sample_idx_mapping_ptr, -1),
    ):
        out.span(num_rows * steps, rows * steps)[:] = value
    behind = num_rows * queries
    given.out_query_slot_mapping_ptr.span(behind, given.max_num_tokens - behind)[:] = given.PAD_SLOT_ID
    if hasattr(given, "out_is_padding_ptr"):
        for out, value in (
            (given.out_input_ids_ptr, 0),
            (given.out_query_positions_ptr, 0),
            (given.out_is_padding_ptr, True),
        ):
            out.span(behind, given.max_num_tokens - behind)[:] = value


def _is_covered(given: Mapping[str, Any]) -> bool:
    """Return whether the definition covers a launch: no context parallelism."""
    return bool(given["CP_SIZE"] == 1)


DEFINITIONS = {
    "_prepare_dflash_inputs_kernel": Definition(
        prepare_dflash_inputs,
        "af6e490376d61e61",
        _is_covered,
        others=(Definition(prepare_dflash_inputs, "6a878b11523f9aa3", _is_covered),),
    )
}

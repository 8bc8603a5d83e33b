"""NumPy definition of the drafter-input kernel in `...gpu.spec_decode.dflash.speculator`."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from workers.simulated_torch.kernel_definitions import Array, Definition, Given

MODULE = "vllm.v1.worker.gpu.spec_decode.dflash.speculator"


def prepare_dflash_inputs(programs: tuple[int, ...], args: Given) -> None:
    """Write slots of the context tokens, and each row's queries: next token, mask tokens."""
    num_rows, reach = programs[0], programs[1] * args.BLOCK_SIZE
    num_queries, shift = args.num_query_per_req, 0 if args.SAMPLE_FROM_ANCHOR else 1
    for row in range(num_rows):
        state, start = args.idx_mapping_ptr[row], args.target_query_start_loc_ptr[row]
        count = args.target_query_start_loc_ptr[row + 1] - start
        valid = count - args.num_rejected_ptr[row]
        tokens = args.last_sampled_ptr if args.num_sampled_ptr[row] > 0 else args.next_prefill_tokens_ptr
        last = args.target_positions_ptr[start + valid - 1]

        seen, kept = min(count, reach), max(0, min(valid, reach))
        positions = args.target_positions_ptr.span(start, kept)
        args.out_context_positions_ptr.span(start, seen)[:] = 0
        args.out_context_slot_mapping_ptr.span(start, seen)[:] = args.PAD_SLOT_ID
        args.out_context_positions_ptr.span(start, kept)[:] = positions
        args.out_context_slot_mapping_ptr.span(start, kept)[:] = _slots(args, row, positions)

        offsets = np.arange(max(0, -valid), min(num_queries, reach - valid))
        queries, places = row * num_queries + offsets, last + 1 + offsets
        ids = np.where(offsets == 0, np.int64(tokens[state]).astype(np.int32), args.parallel_drafting_token_id)
        args.out_input_ids_ptr.put(queries, ids)
        if hasattr(args, "out_is_padding_ptr"):
            args.out_is_padding_ptr.put(queries, False)
        args.out_query_positions_ptr.put(queries, np.minimum(places, args.max_model_len - 1))
        args.out_query_slot_mapping_ptr.put(queries, _slots(args, row, places))
        is_drawn = offsets >= shift
        drawn = row * args.num_speculative_steps + offsets[is_drawn] - shift
        args.out_sample_indices_ptr.put(drawn, queries[is_drawn])
        args.out_sample_pos_ptr.put(drawn, places[is_drawn] + 1 - shift)
        args.out_sample_idx_mapping_ptr.put(drawn, state)

        args.out_query_start_loc_ptr[row] = row * num_queries
        args.out_seq_lens_ptr[row] = min(last + 1 + num_queries, args.max_model_len)
        args.out_temperature_ptr[state] = args.temperature_ptr[state]
        args.out_seeds_ptr[state] = args.seeds_ptr[state]
    if num_rows and reach:
        _pad(num_rows, args)


def _slots(args: Given, row: int, positions: Array) -> Array:
    """Return the slot of each position of a row; positions in the null block get PAD_SLOT_ID."""
    stride = args.block_table_stride
    table = args.block_table_ptr.at(row * stride + np.minimum(positions // args.block_size, stride - 1))
    blocks = table.astype(np.int64)
    slots: Array = np.where(blocks != 0, blocks * args.block_size + positions % args.block_size, args.PAD_SLOT_ID)
    return slots


def _pad(num_rows: int, args: Given) -> None:
    """Fill the padding rows: sequence length 0, no row to sample, slots PAD_SLOT_ID."""
    rows, steps, queries = args.max_num_reqs - num_rows, args.num_speculative_steps, args.num_query_per_req
    args.out_query_start_loc_ptr.span(num_rows, rows + 1)[:] = num_rows * queries
    args.out_seq_lens_ptr.span(num_rows, rows)[:] = 0
    for out, value in (
        (args.out_sample_indices_ptr, 0),
        (args.out_sample_pos_ptr, 0),
        (args.out_sample_idx_mapping_ptr, -1),
    ):
        out.span(num_rows * steps, rows * steps)[:] = value
    behind = num_rows * queries
    args.out_query_slot_mapping_ptr.span(behind, args.max_num_tokens - behind)[:] = args.PAD_SLOT_ID
    if hasattr(args, "out_is_padding_ptr"):
        for out, value in (
            (args.out_input_ids_ptr, 0),
            (args.out_query_positions_ptr, 0),
            (args.out_is_padding_ptr, True),
        ):
            out.span(behind, args.max_num_tokens - behind)[:] = value


def _is_covered(args: Mapping[str, Any]) -> bool:
    """Return whether this definition covers a launch: no context parallelism."""
    return bool(args["CP_SIZE"] == 1)


DEFINITIONS = {
    "_prepare_dflash_inputs_kernel": Definition(
        prepare_dflash_inputs,
        "af6e490376d61e61",
        _is_covered,
        others=(Definition(prepare_dflash_inputs, "6a878b11523f9aa3", _is_covered),),
    )
}

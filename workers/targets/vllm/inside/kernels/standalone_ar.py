"""NumPy definition of the draft-model input kernel in `...standalone_ar.speculator`."""

import numpy as np

from workers.simulated_torch.kernel_definitions import Definition, Given

MODULE = "vllm.v1.worker.gpu.spec_decode.standalone_ar.speculator"


def prepare_prefill_inputs(programs: tuple[int, ...], given: Given) -> None:
    """Write a draft model's first inputs: accepted tokens, last sampled token, then zeros."""
    num_rows, longest, end = programs[0], given.max_model_len, 0
    for row in range(num_rows):
        state, start = given.idx_mapping_ptr[row], given.query_start_loc_ptr[row]
        count = given.query_start_loc_ptr[row + 1] - start
        num_valid, token = count - given.num_rejected_ptr[row], given.last_sampled_ptr[state]
        position, out = given.target_positions_ptr[start], start + row
        ids = given.out_input_ids_ptr.span(out, count + 1)
        shown = max(0, min(num_valid, len(ids)))
        ids[:shown], ids[shown:] = given.target_input_ids_ptr.span(start, shown), 0
        if 0 <= num_valid < len(ids):
            ids[num_valid] = np.int64(token).astype(np.int32)
        positions = np.minimum(np.arange(position, position + len(ids)), longest - 1)
        given.out_positions_ptr.span(out, count + 1)[:] = positions
        given.last_token_indices_ptr[row] = out + num_valid
        given.out_query_start_loc_ptr[row] = out
        given.out_seq_lens_ptr[row] = min(given.seq_lens_ptr[row] + 1, longest)
        end = out + count + 1
    if num_rows:
        padding = given.max_num_reqs - num_rows
        given.out_query_start_loc_ptr[num_rows] = end
        given.out_query_start_loc_ptr.span(num_rows + 1, padding)[:] = end
        given.out_seq_lens_ptr.span(num_rows, padding)[:] = 0
        given.last_token_indices_ptr.span(num_rows, padding)[:] = 0


DEFINITIONS = {"_prepare_prefill_inputs_kernel": Definition(prepare_prefill_inputs, "e859901d3589804c")}

"""NumPy definition of the draft-model input kernel in `...standalone_ar.speculator`."""

import numpy as np

from workers.simulated_torch.kernel_definitions import Definition, Given

MODULE = "vllm.v1.worker.gpu.spec_decode.standalone_ar.speculator"


def prepare_prefill_inputs(programs: tuple[int, ...], args: Given) -> None:
    """Write a draft model's first inputs: accepted tokens, last sampled token, then zeros."""
    num_rows, longest, end = programs[0], args.max_model_len, 0
    for row in range(num_rows):
        state, start = args.idx_mapping_ptr[row], args.query_start_loc_ptr[row]
        count = args.query_start_loc_ptr[row + 1] - start
        num_valid, token = count - args.num_rejected_ptr[row], args.last_sampled_ptr[state]
        position, out = args.target_positions_ptr[start], start + row
        ids = args.out_input_ids_ptr.span(out, count + 1)
        shown = max(0, min(num_valid, len(ids)))
        ids[:shown], ids[shown:] = args.target_input_ids_ptr.span(start, shown), 0
        if 0 <= num_valid < len(ids):
            ids[num_valid] = np.int64(token).astype(np.int32)
        positions = np.minimum(np.arange(position, position + len(ids)), longest - 1)
        args.out_positions_ptr.span(out, count + 1)[:] = positions
        args.last_token_indices_ptr[row] = out + num_valid
        args.out_query_start_loc_ptr[row] = out
        args.out_seq_lens_ptr[row] = min(args.seq_lens_ptr[row] + 1, longest)
        end = out + count + 1
    if num_rows:
        padding = args.max_num_reqs - num_rows
        args.out_query_start_loc_ptr[num_rows] = end
        args.out_query_start_loc_ptr.span(num_rows + 1, padding)[:] = end
        args.out_seq_lens_ptr.span(num_rows, padding)[:] = 0
        args.last_token_indices_ptr.span(num_rows, padding)[:] = 0


DEFINITIONS = {"_prepare_prefill_inputs_kernel": Definition(prepare_prefill_inputs, "e859901d3589804c")}

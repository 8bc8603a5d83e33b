"""NumPy definitions of the drafter-input kernels in `...target_dependent_ar.speculator`."""

import numpy as np

from workers.simulated_torch.kernel_definitions import Definition, Given

MODULE = "vllm.v1.worker.gpu.spec_decode.target_dependent_ar.speculator"


def prepare_prefill_inputs(programs: tuple[int, ...], args: Given) -> None:
    """Write a drafter's first inputs: each row's accepted tokens, shifted left by one."""
    num_rows, end = programs[0], 0
    for row in range(num_rows):
        state, start = args.idx_mapping_ptr[row], args.query_start_loc_ptr[row]
        end = args.query_start_loc_ptr[row + 1]
        count = end - start - args.num_rejected_ptr[row]
        if args.num_sampled_ptr[row] > 0:
            token = int(np.int64(args.last_sampled_ptr[state]).astype(np.int32))
        else:
            token = args.next_prefill_tokens_ptr[state]
        args.draft_input_ids_ptr.span(start, count - 1)[:] = args.target_input_ids_ptr.span(start + 1, count - 1)
        args.last_token_indices_ptr[row] = start + count - 1
        args.draft_input_ids_ptr[start + count - 1] = token
        args.draft_positions_ptr.span(start, count)[:] = args.target_positions_ptr.span(start, count)
        args.draft_query_start_loc_ptr[row] = start
        args.draft_seq_lens_ptr[row] = args.seq_lens_ptr[row]
    if num_rows:
        args.draft_current_step_ptr[0] = 0
        padding = args.max_num_reqs - num_rows
        args.draft_query_start_loc_ptr.span(num_rows, padding + 1)[:] = end
        args.draft_seq_lens_ptr.span(num_rows, padding)[:] = 0
        args.last_token_indices_ptr.span(num_rows, padding)[:] = 0


def prepare_decode_inputs(programs: tuple[int, ...], args: Given) -> None:
    """Write a drafter's inputs of its second pass: each row's first draft token."""
    num_rows, longest = programs[0] - 1, args.max_model_len
    for row in range(num_rows):
        args.input_ids_ptr[row] = args.draft_tokens_ptr[row * args.draft_tokens_stride]
        args.sample_src_positions_ptr[row] += 1
        length = args.target_seq_lens_ptr[row] - args.num_rejected_ptr[row]
        if args.ADVANCE_DRAFT_POSITIONS:
            args.positions_ptr[row] = min(args.positions_ptr[row] + 1, longest - 1)
            length = min(length + 1, longest)
        args.seq_lens_ptr[row] = length
    starts = np.minimum(np.arange(args.max_num_reqs + 1), num_rows)
    args.query_start_loc_ptr.span(0, args.max_num_reqs + 1)[:] = starts
    args.seq_lens_ptr.span(num_rows, args.max_num_reqs - num_rows)[:] = 0


def update_draft_inputs(programs: tuple[int, ...], args: Given) -> None:
    """Store each row's draft token; write the inputs of the next draft pass, if there is one."""
    size, longest = args.hidden_size, args.max_model_len
    for row in range(programs[0]):
        draft, step = args.draft_tokens_ptr[row], args.current_draft_step_ptr[0]
        args.output_draft_tokens_ptr[row * args.output_draft_tokens_stride + step] = draft
        if step >= args.num_speculative_steps - 1:
            continue
        args.sample_src_positions_ptr[row] += 1
        args.input_ids_ptr[row] = draft
        states = args.hidden_states_ptr.span(row * args.hidden_states_stride, size)
        args.next_input_hidden_states_ptr.span(row * args.next_input_hidden_states_stride, size)[:] = states
        if args.ADVANCE_DRAFT_POSITIONS:
            args.positions_ptr[row] = min(args.positions_ptr[row] + 1, longest - 1)
            args.seq_lens_ptr[row] = min(args.seq_lens_ptr[row] + 1, longest)


DEFINITIONS = {
    "_prepare_prefill_inputs_kernel": Definition(prepare_prefill_inputs, "38d60fc70d639ad4"),
    "_prepare_decode_inputs_kernel": Definition(prepare_decode_inputs, "65507e6fbc4a79d5"),
    "_update_draft_inputs_kernel": Definition(update_draft_inputs, "d9931d3dc21013fa"),
}

"""NumPy definitions of the drafter-input kernels in `...target_dependent_ar.speculator`."""

import numpy as np

from workers.simulated_torch.kernel_definitions import Definition, Given

MODULE = "vllm.v1.worker.gpu.spec_decode.target_dependent_ar.speculator"


def prepare_prefill_inputs(programs: tuple[int, ...], given: Given) -> None:
    """Write a drafter's first inputs: each row's accepted tokens, shifted left by one."""
    num_rows, end = programs[0], 0
    for row in range(num_rows):
        state, start = given.idx_mapping_ptr[row], given.query_start_loc_ptr[row]
        end = given.query_start_loc_ptr[row + 1]
        count = end - start - given.num_rejected_ptr[row]
        if given.num_sampled_ptr[row] > 0:
            token = int(np.int64(given.last_sampled_ptr[state]).astype(np.int32))
        else:
            token = given.next_prefill_tokens_ptr[state]
        given.draft_input_ids_ptr.span(start, count - 1)[:] = given.target_input_ids_ptr.span(start + 1, count - 1)
        given.last_token_indices_ptr[row] = start + count - 1
        given.draft_input_ids_ptr[start + count - 1] = token
        given.draft_positions_ptr.span(start, count)[:] = given.target_positions_ptr.span(start, count)
        given.draft_query_start_loc_ptr[row] = start
        given.draft_seq_lens_ptr[row] = given.seq_lens_ptr[row]
    if num_rows:
        given.draft_current_step_ptr[0] = 0
        padding = given.max_num_reqs - num_rows
        given.draft_query_start_loc_ptr.span(num_rows, padding + 1)[:] = end
        given.draft_seq_lens_ptr.span(num_rows, padding)[:] = 0
        given.last_token_indices_ptr.span(num_rows, padding)[:] = 0


def prepare_decode_inputs(programs: tuple[int, ...], given: Given) -> None:
    """Write a drafter's inputs of its second pass: each row's first draft token."""
    num_rows, longest = programs[0] - 1, given.max_model_len
    for row in range(num_rows):
        given.input_ids_ptr[row] = given.draft_tokens_ptr[row * given.draft_tokens_stride]
        given.sample_src_positions_ptr[row] += 1
        length = given.target_seq_lens_ptr[row] - given.num_rejected_ptr[row]
        if given.ADVANCE_DRAFT_POSITIONS:
            given.positions_ptr[row] = min(given.positions_ptr[row] + 1, longest - 1)
            length = min(length + 1, longest)
        given.seq_lens_ptr[row] = length
    starts = np.minimum(np.arange(given.max_num_reqs + 1), num_rows)
    given.query_start_loc_ptr.span(0, given.max_num_reqs + 1)[:] = starts
    given.seq_lens_ptr.span(num_rows, given.max_num_reqs - num_rows)[:] = 0


def update_draft_inputs(programs: tuple[int, ...], given: Given) -> None:
    """Store each row's draft token; write the next draft pass's inputs, except after the last."""
    size, longest = given.hidden_size, given.max_model_len
    for row in range(programs[0]):
        draft, step = given.draft_tokens_ptr[row], given.current_draft_step_ptr[0]
        given.output_draft_tokens_ptr[row * given.output_draft_tokens_stride + step] = draft
        if step >= given.num_speculative_steps - 1:
            continue
        given.sample_src_positions_ptr[row] += 1
        given.input_ids_ptr[row] = draft
        states = given.hidden_states_ptr.span(row * given.hidden_states_stride, size)
        given.next_input_hidden_states_ptr.span(row * given.next_input_hidden_states_stride, size)[:] = states
        if given.ADVANCE_DRAFT_POSITIONS:
            given.positions_ptr[row] = min(given.positions_ptr[row] + 1, longest - 1)
            given.seq_lens_ptr[row] = min(given.seq_lens_ptr[row] + 1, longest)


DEFINITIONS = {
    "_prepare_prefill_inputs_kernel": Definition(prepare_prefill_inputs, "38d60fc70d639ad4"),
    "_prepare_decode_inputs_kernel": Definition(prepare_decode_inputs, "65507e6fbc4a79d5"),
    "_update_draft_inputs_kernel": Definition(update_draft_inputs, "d9931d3dc21013fa"),
}

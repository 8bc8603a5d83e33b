"""NumPy definitions of the kernels in `vllm.v1.worker.gpu.input_batch`."""

import numpy as np

from workers.simulated_torch.kernel_definitions import Definition, Given

MODULE = "vllm.v1.worker.gpu.input_batch"


def prepare_prefill_inputs(programs: tuple[int, ...], args: Given) -> None:
    """Copy each row's prompt tokens for this step; save the prompt token after them."""
    for row in range(programs[0]):
        state = args.idx_mapping_ptr[row]
        length, computed = args.prefill_lens_ptr[state], args.num_computed_tokens_ptr[state]
        if computed >= length:
            continue
        start = args.query_start_loc_ptr[row]
        count = args.query_start_loc_ptr[row + 1] - start
        tokens, first = args.all_token_ids_ptr, state * args.all_token_ids_stride + computed
        args.input_ids_ptr.span(start, count)[:] = tokens.span(first, count)
        known = min(max(length - computed - count, 0), args.num_lookahead)
        for ahead in range(args.num_lookahead):
            token = tokens[first + count + ahead] if ahead < known else 0
            args.next_prefill_tokens_ptr[ahead * args.next_prefill_tokens_stride + state] = token


def prepare_pos_seq_lens(programs: tuple[int, ...], args: Given) -> None:
    """Write token positions and sequence lengths of a step; padding rows have length 0."""
    num_rows = programs[0] - 1
    for row in range(num_rows):
        computed = args.num_computed_tokens_ptr[args.idx_mapping_ptr[row]]
        start = args.query_start_loc_ptr[row]
        count = args.query_start_loc_ptr[row + 1] - start
        args.seq_lens_ptr[row] = computed + count
        args.pos_ptr.span(start, count)[:] = np.arange(computed, computed + max(count, 0))
    args.seq_lens_ptr.span(num_rows, args.max_num_reqs - num_rows)[:] = 0


def combine_sampled_and_draft_tokens(programs: tuple[int, ...], args: Given) -> None:
    """Write last sampled and draft tokens to the input ids, and each row's logits indices."""
    num_new = args.NUM_NEW_SAMPLED_TOKENS
    for row in range(programs[0]):
        state = args.idx_mapping_ptr[row]
        first = args.cu_num_logits_ptr[row]
        num_logits = args.cu_num_logits_ptr[row + 1] - first
        end = args.query_start_loc_ptr[row + 1]
        shown = min(num_logits, args.BLOCK_SIZE)
        args.logits_indices_ptr.span(first, shown)[:] = np.arange(end - num_logits, end - num_logits + max(shown, 0))
        length, prefill = args.seq_lens_ptr[row], args.prefill_len_ptr[state]
        if length <= prefill:
            continue
        if num_new > 0 and length - num_logits >= prefill:
            args.input_ids_ptr[end - num_logits] = args.last_sampled_tokens_ptr[state]
        num_drafts = num_logits - num_new
        shown = min(num_drafts, args.BLOCK_SIZE)
        drafts = args.draft_tokens_ptr.span(state * args.draft_tokens_stride, shown)
        args.input_ids_ptr.span(end - num_drafts, shown)[:] = drafts


def get_num_sampled_and_rejected(programs: tuple[int, ...], args: Given) -> None:
    """Count each row's sampled and rejected tokens; rows with an unfinished prefill count 0."""
    for row in range(programs[0]):
        is_chunk = args.seq_lens_ptr[row] < args.prefill_len_ptr[args.idx_mapping_ptr[row]]
        sampled = 0 if is_chunk else args.num_sampled_ptr[row]
        args.num_sampled_ptr[row] = sampled
        num_logits = args.cu_num_logits_ptr[row + 1] - args.cu_num_logits_ptr[row]
        args.num_rejected_ptr[row] = 0 if is_chunk else num_logits - sampled


def post_update(programs: tuple[int, ...], args: Given) -> None:
    """Append sampled tokens to their requests; update output and computed-token counts."""
    for row in range(programs[0]):
        state = args.idx_mapping_ptr[row]
        if state < 0:
            continue
        length, sampled = args.total_len_ptr[state], args.num_sampled_ptr[row]
        tokens = args.sampled_tokens_ptr.span(row * args.sampled_tokens_stride, sampled)
        if sampled > 0:
            args.last_sampled_tokens_ptr[state] = tokens[-1]
            args.total_len_ptr[state] = length + sampled
        args.all_token_ids_ptr.span(state * args.all_token_ids_stride + length, sampled)[:] = tokens
        if args.output_bin_counts_ptr is not None:
            for token in tokens.tolist():
                args.output_bin_counts_ptr[state * args.output_bin_counts_stride + token] += 1
        count = 0
        if args.query_start_loc_ptr is not None:
            count = args.query_start_loc_ptr[row + 1] - args.query_start_loc_ptr[row]
        if advance := count - args.num_rejected_ptr[row]:
            args.num_computed_tokens_ptr[state] += advance


def post_update_num_computed_tokens(programs: tuple[int, ...], args: Given) -> None:
    """Advance each request's computed-token count by its scheduled tokens."""
    for row in range(programs[0]):
        count = args.query_start_loc_ptr[row + 1] - args.query_start_loc_ptr[row]
        args.num_computed_tokens_ptr[args.idx_mapping_ptr[row]] += count


def expand_idx_mapping(programs: tuple[int, ...], args: Given) -> None:
    """Write the request index of each logits row, and the row's position within its request."""
    for row in range(programs[0]):
        first = args.cu_num_logits_ptr[row]
        shown = min(args.cu_num_logits_ptr[row + 1] - first, args.BLOCK_SIZE)
        args.expanded_idx_mapping_ptr.span(first, shown)[:] = args.idx_mapping_ptr[row]
        args.expanded_local_pos_ptr.span(first, shown)[:] = np.arange(max(shown, 0))


DEFINITIONS = {
    "_prepare_prefill_inputs_kernel": Definition(prepare_prefill_inputs, "cde7e0e746e5b4d9"),
    "_prepare_pos_seq_lens_kernel": Definition(prepare_pos_seq_lens, "6e93ae9116d7df95"),
    "_combine_sampled_and_draft_tokens_kernel": Definition(combine_sampled_and_draft_tokens, "52ca2c9a3bce57d3"),
    "_get_num_sampled_and_rejected_kernel": Definition(get_num_sampled_and_rejected, "cabd3e9378588d75"),
    "_post_update_kernel": Definition(
        post_update,
        "2fbf24d1e4a42601",
        others=(Definition(post_update, "1e2aa8979a8383d8", lambda args: args["draft_tokens_ptr"] is None),),
    ),
    "_post_update_num_computed_tokens_kernel": Definition(post_update_num_computed_tokens, "a1961770067c2ea9"),
    "_expand_idx_mapping_kernel": Definition(expand_idx_mapping, "ce073d1318001db2"),
}

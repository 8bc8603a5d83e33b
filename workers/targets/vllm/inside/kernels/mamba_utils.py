"""NumPy definitions of the recurrent-state copy kernels in `vllm.v1.worker.mamba_utils`."""

from collections.abc import Iterator

import numpy as np

from workers.simulated_torch.kernel_definitions import Definition, Given

MODULE = "vllm.v1.worker.mamba_utils"


def _requests(programs: tuple[int, ...], args: Given) -> Iterator[int]:
    """Yield the request index of each batch row of a launch; skip rows without a request."""
    for row in range(min(programs[0], args.num_reqs)):
        at = args.idx_mapping_ptr[row] if args.HAS_IDX_MAPPING else row
        if at >= 0:
            yield at


def preprocess(programs: tuple[int, ...], args: Given) -> None:
    """Set each request's current state block to the block in which this step ends.

    The previous block and accepted tokens are kept for `precopy`; in a new block the accepted count is reset to 1.
    """
    for row in range(args.num_reqs):
        at = args.idx_mapping_ptr[row]
        source, accepted = args.state_idx_ptr[at], args.num_accepted_tokens_ptr[at]
        args.src_col_ptr[at], args.src_off_ptr[at] = source, max(accepted - 1, 0)
        length = args.query_start_loc_ptr[row + 1] - args.query_start_loc_ptr[row]
        target = -(-(args.num_computed_tokens_ptr[at] + length) // args.MAMBA_BLOCK_SIZE) - 1
        args.state_idx_ptr[at] = target
        if 0 <= source != target:
            args.num_accepted_tokens_ptr[at] = 1


def precopy(programs: tuple[int, ...], args: Given) -> None:
    """Copy each request's recurrent state to the block that the step writes."""
    for at in _requests(programs, args):
        source, target = args.src_col_ptr[at], args.mamba_state_idx_ptr[at]
        if 0 <= source != target:
            bias = args.token_bias_ptr[at]
            for state in range(programs[1]):
                _copy(args, state, at, (source, target), bias)


def postprocess(programs: tuple[int, ...], args: Given) -> None:
    """Copy each request's state to the last block that its accepted tokens fill.

    If that block is the request's current one, its accepted count is reset to 1.
    """
    for at in _requests(programs, args):
        accepted, source = args.num_accepted_tokens_ptr[at], args.mamba_state_idx_ptr[at]
        computed = args.num_computed_tokens_ptr[at]
        if args.PRECOMPUTED_NEW_COMPUTED:
            running = computed - accepted + 1
        else:
            running = computed + args.num_scheduled_tokens_ptr[at] - args.num_draft_tokens_ptr[at]
            computed = running + accepted - 1
        blocks = computed // args.block_size
        bias, target = blocks * args.block_size - running, blocks - 1
        if bias < 0:
            continue
        if source == target:
            args.num_accepted_tokens_out_ptr[at] = 1
        if source != target or bias:
            for state in range(programs[1]):
                _copy(args, state, at, (source, target), bias)


def _copy(args: Given, state: int, row: int, columns: tuple[int, int], bias: int) -> None:
    """Copy one recurrent state of a request between two columns of its block table.

    A convolution state is copied without its first `bias` tokens; other states have one column per token.
    """
    width, size = args.state_conv_widths_ptr[state], args.state_elem_sizes_ptr[state]
    table = args.block_table_ptrs_ptr.to(args.state_group_indices_ptr[state], np.int32)
    first = row * args.block_table_stride_req
    source, target = columns[0] if width else columns[0] + bias, columns[1]
    memory = args.state_base_addrs_ptr.to(state, np.uint8)
    begin, end = (table[first + column] * args.state_block_strides_ptr[state] for column in (source, target))
    rows, stride, token = 1, 0, args.state_inner_sizes_ptr[state] * size
    count = token
    if width and args.CONV_STATE_DIM_FIRST:
        rows, stride, token = args.state_dim_row_count_ptr[state], args.state_dim_row_stride_ptr[state], size
    if width:
        begin, count = begin + bias * token, (width - bias) * token
    for number in range(rows):
        moved = memory.span(begin + number * stride, count).copy()
        memory.span(end + number * stride, count)[:] = moved


DEFINITIONS = {
    "preprocess_mamba_align_fused_kernel": Definition(preprocess, "75d2a4e78716c966"),
    # The second digest is of the source in a process without Triton.
    "precopy_mamba_align_fused_kernel": Definition(
        precopy, "db12bfe48df0a2e0", others=(Definition(precopy, "5af28798e82eeda9"),)
    ),
    "postprocess_mamba_fused_kernel": Definition(
        postprocess, "6dca78119a1eb8ba", others=(Definition(postprocess, "f378446f81c59742"),)
    ),
}

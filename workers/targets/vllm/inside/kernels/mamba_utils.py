"""NumPy definitions of the recurrent-state copy kernels in `vllm.v1.worker.mamba_utils`."""

from collections.abc import Iterator

import numpy as np

from workers.simulated_torch.kernel_definitions import Definition, Given

MODULE = "vllm.v1.worker.mamba_utils"


def _requests(programs: tuple[int, ...], given: Given) -> Iterator[int]:
    """Yield the request index of each batch row of a launch, except rows without a request."""
    for row in range(min(programs[0], given.num_reqs)):
        at = given.idx_mapping_ptr[row] if given.HAS_IDX_MAPPING else row
        if at >= 0:
            yield at


def preprocess(programs: tuple[int, ...], given: Given) -> None:
    """Set each request's current state block to the block in which the step ends.

    The previous block and accepted tokens are kept for `precopy`; in a new block the accepted count is reset to 1.
    """
    for row in range(given.num_reqs):
        at = given.idx_mapping_ptr[row]
        source, accepted = given.state_idx_ptr[at], given.num_accepted_tokens_ptr[at]
        given.src_col_ptr[at], given.src_off_ptr[at] = source, max(accepted - 1, 0)
        length = given.query_start_loc_ptr[row + 1] - given.query_start_loc_ptr[row]
        target = -(-(given.num_computed_tokens_ptr[at] + length) // given.MAMBA_BLOCK_SIZE) - 1
        given.state_idx_ptr[at] = target
        if 0 <= source != target:
            given.num_accepted_tokens_ptr[at] = 1


def precopy(programs: tuple[int, ...], given: Given) -> None:
    """Copy each request's current state to the block into which the step writes."""
    for at in _requests(programs, given):
        source, target = given.src_col_ptr[at], given.mamba_state_idx_ptr[at]
        if 0 <= source != target:
            bias = given.token_bias_ptr[at]
            for state in range(programs[1]):
                _copy(given, state, at, (source, target), bias)


def postprocess(programs: tuple[int, ...], given: Given) -> None:
    """Copy each request's state to the last block end that its accepted tokens have passed.

    If that block is the request's current one, its accepted count is reset to 1.
    """
    for at in _requests(programs, given):
        accepted, source = given.num_accepted_tokens_ptr[at], given.mamba_state_idx_ptr[at]
        computed = given.num_computed_tokens_ptr[at]
        if given.PRECOMPUTED_NEW_COMPUTED:
            running = computed - accepted + 1
        else:
            running = computed + given.num_scheduled_tokens_ptr[at] - given.num_draft_tokens_ptr[at]
            computed = running + accepted - 1
        blocks = computed // given.block_size
        bias, target = blocks * given.block_size - running, blocks - 1
        if bias < 0:
            continue
        if source == target:
            given.num_accepted_tokens_out_ptr[at] = 1
        if source != target or bias:
            for state in range(programs[1]):
                _copy(given, state, at, (source, target), bias)


def _copy(given: Given, state: int, row: int, columns: tuple[int, int], bias: int) -> None:
    """Copy one recurrent state of a request from one block-table column to another.

    A convolution state is copied without its first `bias` tokens; other states have one column per token.
    """
    width, size = given.state_conv_widths_ptr[state], given.state_elem_sizes_ptr[state]
    table = given.block_table_ptrs_ptr.to(given.state_group_indices_ptr[state], np.int32)
    first = row * given.block_table_stride_req
    source, target = columns[0] if width else columns[0] + bias, columns[1]
    memory = given.state_base_addrs_ptr.to(state, np.uint8)
    begin, end = (table[first + column] * given.state_block_strides_ptr[state] for column in (source, target))
    rows, stride, token = 1, 0, given.state_inner_sizes_ptr[state] * size
    count = token
    if width and given.CONV_STATE_DIM_FIRST:
        rows, stride, token = given.state_dim_row_count_ptr[state], given.state_dim_row_stride_ptr[state], size
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

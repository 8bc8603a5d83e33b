"""NumPy definitions of the kernels in `vllm.v1.worker.gpu.block_table`."""

import numpy as np

from workers.simulated_torch.kernel_definitions import Definition, Given

MODULE = "vllm.v1.worker.gpu.block_table"


def gather_block_tables(programs: tuple[int, ...], given: Given) -> None:
    """Copy each batch row's block ids to each group's block table; padding rows get 0."""
    num_groups, num_rows = programs[:2]
    for group in range(num_groups):
        stride = given.block_table_strides[group]
        to, source = given.dst_block_table_ptrs.to(group, np.int32), given.src_block_table_ptrs.to(group, np.int32)
        for row in range(num_rows):
            if row >= given.num_reqs:
                to.span(row * stride, stride)[:] = 0
                continue
            state = given.batch_idx_to_req_idx[row]
            count = given.num_blocks_ptr[group * given.num_blocks_stride + state]
            to.span(row * stride, count)[:] = source.span(state * stride, count)


def compute_slot_mappings(programs: tuple[int, ...], given: Given) -> None:
    """Write each token's slot in each KV-cache group; padding tokens and unused rows get PAD_ID."""
    num_groups, num_rows = programs[0], programs[1] - 1
    for group in range(num_groups):
        size, first = given.block_sizes[group], group * given.slot_mappings_stride
        stride, is_enabled = given.block_table_strides[group], given.slot_mapping_enabled[group]
        table, slots = given.block_table_ptrs.to(group, np.int32), given.slot_mappings_ptr
        for row in range(num_rows):
            state, start = given.idx_mapping[row], given.query_start_loc[row]
            count = given.query_start_loc[row + 1] - start
            if count <= 0:
                continue
            if state < 0 or not is_enabled:
                slots.span(first + start, count)[:] = given.PAD_ID
                continue
            positions = given.pos.span(start, count)
            blocks = table.at(state * stride + positions // size)
            slots.span(first + start, count)[:] = blocks * np.int32(size) + positions % size
        end = given.query_start_loc[num_rows]
        slots.span(first + end, given.max_num_tokens - end)[:] = given.PAD_ID


DEFINITIONS = {
    "_gather_block_tables_kernel": Definition(
        gather_block_tables,
        "ab43743b91d5089a",
        others=(Definition(gather_block_tables, "4ac12c153276f329", lambda given: not given["MASK_SLIDING_WINDOW"]),),
    ),
    "_compute_slot_mappings_kernel": Definition(
        compute_slot_mappings, "8a2af52f430c7b2e", lambda given: given["CP_SIZE"] == 1
    ),
}

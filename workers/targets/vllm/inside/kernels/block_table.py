"""NumPy definitions of the kernels in `vllm.v1.worker.gpu.block_table`."""

import numpy as np

from workers.simulated_torch.kernel_definitions import Definition, Given

MODULE = "vllm.v1.worker.gpu.block_table"


def gather_block_tables(programs: tuple[int, ...], args: Given) -> None:
    """Copy each batch row's block ids to each group's block table; padding rows get 0."""
    num_groups, num_rows = programs[:2]
    for group in range(num_groups):
        stride = args.block_table_strides[group]
        to, source = args.dst_block_table_ptrs.to(group, np.int32), args.src_block_table_ptrs.to(group, np.int32)
        for row in range(num_rows):
            if row >= args.num_reqs:
                to.span(row * stride, stride)[:] = 0
                continue
            state = args.batch_idx_to_req_idx[row]
            count = args.num_blocks_ptr[group * args.num_blocks_stride + state]
            to.span(row * stride, count)[:] = source.span(state * stride, count)


def compute_slot_mappings(programs: tuple[int, ...], args: Given) -> None:
    """Write each token's slot in each KV-cache group; padding tokens and unused rows get PAD_ID."""
    num_groups, num_rows = programs[0], programs[1] - 1
    for group in range(num_groups):
        size, first = args.block_sizes[group], group * args.slot_mappings_stride
        stride, is_enabled = args.block_table_strides[group], args.slot_mapping_enabled[group]
        table, slots = args.block_table_ptrs.to(group, np.int32), args.slot_mappings_ptr
        for row in range(num_rows):
            state, start = args.idx_mapping[row], args.query_start_loc[row]
            count = args.query_start_loc[row + 1] - start
            if count <= 0:
                continue
            if state < 0 or not is_enabled:
                slots.span(first + start, count)[:] = args.PAD_ID
                continue
            positions = args.pos.span(start, count)
            blocks = table.at(state * stride + positions // size)
            slots.span(first + start, count)[:] = blocks * np.int32(size) + positions % size
        end = args.query_start_loc[num_rows]
        slots.span(first + end, args.max_num_tokens - end)[:] = args.PAD_ID


DEFINITIONS = {
    "_gather_block_tables_kernel": Definition(
        gather_block_tables,
        "ab43743b91d5089a",
        others=(Definition(gather_block_tables, "4ac12c153276f329", lambda args: not args["MASK_SLIDING_WINDOW"]),),
    ),
    "_compute_slot_mappings_kernel": Definition(
        compute_slot_mappings, "8a2af52f430c7b2e", lambda args: args["CP_SIZE"] == 1
    ),
}

"""NumPy definition of the kernel in `vllm.v1.worker.utils` that zeroes new KV-cache blocks."""

import numpy as np

from workers.simulated_torch.kernel_definitions import Definition, Given

MODULE = "vllm.v1.worker.utils"


def zero_kv_blocks(programs: tuple[int, ...], args: Given) -> None:
    """Zero the given blocks in every segment (layer tensor) of the KV caches."""
    num_blocks, num_segments, num_chunks = programs
    for number in range(num_blocks):
        block = args.block_ids_ptr[number]
        for segment in range(num_segments):
            words = min(args.seg_page_sizes_ptr[segment], num_chunks * args.BLOCK_SIZE)
            if words > 0:
                memory = args.seg_addrs_ptr.to(segment, np.int32)
                memory.span(block * args.seg_block_strides_ptr[segment], words)[:] = 0


DEFINITIONS = {"_zero_kv_blocks_kernel": Definition(zero_kv_blocks, "247cd4cd43f8d5da")}

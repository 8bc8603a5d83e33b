"""NumPy definition of the kernel in `vllm.v1.worker.gpu.buffer_utils`: staged host writes."""

import numpy as np

from workers.simulated_torch.kernel_definitions import Definition, Given

MODULE = "vllm.v1.worker.gpu.buffer_utils"


def apply_write(programs: tuple[int, ...], given: Given) -> None:
    """Copy each write that the host staged to its row of the output (or its group's output)."""
    begin = 0
    for number in range(programs[0]):
        end = given.write_cu_lens_ptr[number]
        _write(number, begin, end - begin, given)
        begin = end


def _write(number: int, begin: int, count: int, given: Given) -> None:
    """Copy one staged write: `count` values, from index `begin` of the staged contents."""
    to, stride = given.output_ptr, given.output_stride
    if given.MULTI_GROUP:
        group = given.write_group_ids_ptr[number]
        to, stride = to.to(group, np.int32), stride[group]
    first = given.write_indices_ptr[number] * stride + given.write_starts_ptr[number]
    to.span(first, count)[:] = given.write_contents_ptr.span(begin, count)


def apply_write_in_chunks(programs: tuple[int, ...], given: Given) -> None:
    """Like `apply_write`, but each write has at most the grid's `programs[1]` chunks."""
    begin, reach = 0, programs[1] * given.BLOCK_SIZE
    for number in range(programs[0]):
        end = given.write_cu_lens_ptr[number]
        _write(number, begin, min(end - begin, reach), given)
        begin = end


DEFINITIONS = {
    "_apply_write_kernel": Definition(
        apply_write, "d56b383497d07ea5", others=(Definition(apply_write_in_chunks, "945f832d53977420"),)
    )
}

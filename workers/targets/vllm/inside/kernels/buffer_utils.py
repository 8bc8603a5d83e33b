"""NumPy definition of the kernel in `vllm.v1.worker.gpu.buffer_utils`: staged host writes."""

import numpy as np

from workers.simulated_torch.kernel_definitions import Definition, Given

MODULE = "vllm.v1.worker.gpu.buffer_utils"


def apply_write(programs: tuple[int, ...], args: Given) -> None:
    """Copy each staged host write to its row of the output tensor, or of its group's tensor."""
    begin = 0
    for number in range(programs[0]):
        end = args.write_cu_lens_ptr[number]
        _write(number, begin, end - begin, args)
        begin = end


def _write(number: int, begin: int, count: int, args: Given) -> None:
    """Copy one staged write: `count` values, from index `begin` of the staged contents."""
    to, stride = args.output_ptr, args.output_stride
    if args.MULTI_GROUP:
        group = args.write_group_ids_ptr[number]
        to, stride = to.to(group, np.int32), stride[group]
    first = args.write_indices_ptr[number] * stride + args.write_starts_ptr[number]
    to.span(first, count)[:] = args.write_contents_ptr.span(begin, count)


def apply_write_in_chunks(programs: tuple[int, ...], args: Given) -> None:
    """Like `apply_write`, for launches that divide each write into `programs[1]` chunks."""
    begin, reach = 0, programs[1] * args.BLOCK_SIZE
    for number in range(programs[0]):
        end = args.write_cu_lens_ptr[number]
        _write(number, begin, min(end - begin, reach), args)
        begin = end


DEFINITIONS = {
    "_apply_write_kernel": Definition(
        apply_write, "d56b383497d07ea5", others=(Definition(apply_write_in_chunks, "945f832d53977420"),)
    )
}

"""NumPy definition of the min-p kernel in `vllm.v1.worker.gpu.sample.min_p`."""

import numpy as np

from workers.simulated_torch.kernel_definitions import Definition, Given
from workers.targets.vllm.inside.kernels.arithmetic import LOWEST, highest

MODULE = "vllm.v1.worker.gpu.sample.min_p"


def apply_min_p(programs: tuple[int, ...], args: Given) -> None:
    """Mask tokens whose probability is below `min_p` times the highest one."""
    for row in range(programs[0]):
        part = np.float32(args.min_p_ptr[args.expanded_idx_mapping_ptr[row]])
        if part == 0:
            continue
        line, most = args.logits_ptr.span(row * args.logits_stride, args.vocab_size), LOWEST
        for first in range(0, args.vocab_size, args.BLOCK_SIZE):
            most = highest(np.fmax(line[first : first + args.BLOCK_SIZE], most), args.BLOCK_SIZE)[0]
        line[:] = np.where(line < np.float32(most) + np.log(part), LOWEST, line)


DEFINITIONS = {"_min_p_kernel": Definition(apply_min_p, "809fbe5819fec542")}

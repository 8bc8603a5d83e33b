"""NumPy definition of the grammar-bitmask kernel in `...gpu.structured_outputs`."""

import numpy as np

from workers.simulated_torch.kernel_definitions import Definition, Given
from workers.targets.vllm.inside.kernels.arithmetic import LOWEST

MODULE = "vllm.v1.worker.gpu.structured_outputs"


def apply_grammar_bitmask(programs: tuple[int, ...], args: Given) -> None:
    """Mask the tokens of a logits row whose bit is 0; tokens beyond the bitmask have bit 0."""
    size = min(args.vocab_size, programs[1] * args.BLOCK_SIZE)
    for number in range(programs[0]):
        row, position = divmod(args.logits_indices_ptr[number], args.MASK_STRIDE)
        first = args.cu_num_logits_ptr[row]
        num_words = min(args.bitmask_stride, programs[1] * args.BLOCK_SIZE // 32)
        words = args.bitmask_ptr.span(number * args.bitmask_stride, num_words)
        if position >= args.cu_num_logits_ptr[row + 1] - first:
            continue
        bits = np.zeros(size, dtype=bool)
        known = np.unpackbits(words.astype("<i4", copy=False).view(np.uint8), bitorder="little")[:size]
        bits[: len(known)] = known
        line = args.logits_ptr.span((first + position) * args.logits_stride, size)
        line[~bits] = LOWEST


DEFINITIONS = {"_apply_grammar_bitmask_kernel": Definition(apply_grammar_bitmask, "979884b13225149c")}

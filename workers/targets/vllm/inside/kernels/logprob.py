"""NumPy definitions of the kernels in `...gpu.sample.logprob`: logprobs and token ranks."""

import numpy as np

from workers.simulated_torch.kernel_definitions import Definition, Given
from workers.targets.vllm.inside.kernels.arithmetic import LOWEST, highest, total

MODULE = "vllm.v1.worker.gpu.sample.logprob"


def topk_log_softmax(programs: tuple[int, ...], args: Given) -> None:
    """Write the logprobs of the requested token ids of each logits row."""
    size, width = args.vocab_size, args.BLOCK_SIZE
    for row in range(programs[0]):
        line = args.logits_ptr.span(row * args.logits_stride, size)
        most, mass = LOWEST, np.float32(0)
        for first in range(0, size, width):
            most = highest(np.fmax(line[first : first + width], most), width)[0]
        most = np.float32(most)
        for first in range(0, size, width):
            mass = mass + total(np.exp(line[first : first + width].astype(np.float32) - most), width)
        ids = args.topk_ids_ptr.span(row * args.topk_ids_stride, args.topk)
        logits = args.logits_ptr.at(row * args.logits_stride + ids).astype(np.float32)
        args.output_ptr.span(row * args.topk, args.topk)[:] = logits - most - np.log(mass)


def ranks(programs: tuple[int, ...], args: Given) -> None:
    """Write each token's rank: how many logits of its row are at least as high.

    Padding lanes of the last block are -inf and count for a token whose logit is -inf.
    """
    behind = -args.vocab_size % args.BLOCK_SIZE
    for row in range(programs[0]):
        line = args.logits_ptr.span(row * args.logits_stride, args.vocab_size)
        logit = args.logits_ptr[row * args.logits_stride + args.token_ids_ptr[row]]
        args.output_ptr[row] = np.count_nonzero(line >= logit) + (behind if logit == LOWEST else 0)


def fill_logprob_token_ids(programs: tuple[int, ...], args: Given) -> None:
    """Write the token ids to compute logprobs for: the sampled one, then requested or top-k."""
    for row in range(programs[0]):
        tokens, valid = row * args.out_token_ids_stride, row * args.out_valid_mask_stride
        args.out_token_ids_ptr[tokens] = args.sampled_token_ids_ptr[row]
        args.out_valid_mask_ptr[valid] = True
        state = args.expanded_idx_mapping_ptr[row]
        count = args.num_per_req_token_ids_ptr[state]
        if count > 0:
            source, first = args.per_req_token_ids_ptr, state * args.per_req_token_ids_stride
        else:
            source, first, count = args.topk_indices_ptr, row * args.topk_indices_stride, args.NUM_TOPK
        count = min(count, args.PADDED_COLS)
        args.out_token_ids_ptr.span(tokens + 1, count)[:] = source.span(first, count)
        args.out_valid_mask_ptr.span(valid + 1, count)[:] = True


DEFINITIONS = {
    "_topk_log_softmax_kernel": Definition(topk_log_softmax, "64ba3853d1bc9277"),
    "_ranks_kernel": Definition(ranks, "fc5760acdbe0d963"),
    "_fill_logprob_token_ids_kernel": Definition(fill_logprob_token_ids, "0a36320cada1db5d"),
}

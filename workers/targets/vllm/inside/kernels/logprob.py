"""NumPy definitions of the kernels in `...gpu.sample.logprob`: logprobs and token ranks."""

import numpy as np

from workers.simulated_torch.kernel_definitions import Definition, Given
from workers.targets.vllm.inside.kernels.arithmetic import LOWEST, highest, total

MODULE = "vllm.v1.worker.gpu.sample.logprob"


def topk_log_softmax(programs: tuple[int, ...], given: Given) -> None:
    """Write the logprobs of `topk` given token ids for each logits row."""
    size, width = given.vocab_size, given.BLOCK_SIZE
    for row in range(programs[0]):
        line = given.logits_ptr.span(row * given.logits_stride, size)
        most, mass = LOWEST, np.float32(0)
        for first in range(0, size, width):
            most = highest(np.fmax(line[first : first + width], most), width)[0]
        most = np.float32(most)
        for first in range(0, size, width):
            mass = mass + total(np.exp(line[first : first + width].astype(np.float32) - most), width)
        ids = given.topk_ids_ptr.span(row * given.topk_ids_stride, given.topk)
        logits = given.logits_ptr.at(row * given.logits_stride + ids).astype(np.float32)
        given.output_ptr.span(row * given.topk, given.topk)[:] = logits - most - np.log(mass)


def ranks(programs: tuple[int, ...], given: Given) -> None:
    """Write each token's rank: the number of its row's logits at least as high as its own.

    Padding lanes of the last block are -inf and count for a token whose logit is -inf.
    """
    behind = -given.vocab_size % given.BLOCK_SIZE
    for row in range(programs[0]):
        line = given.logits_ptr.span(row * given.logits_stride, given.vocab_size)
        logit = given.logits_ptr[row * given.logits_stride + given.token_ids_ptr[row]]
        given.output_ptr[row] = np.count_nonzero(line >= logit) + (behind if logit == LOWEST else 0)


def fill_logprob_token_ids(programs: tuple[int, ...], given: Given) -> None:
    """Write each row's token ids for logprobs: the sampled one, then requested or top-k ones."""
    for row in range(programs[0]):
        tokens, valid = row * given.out_token_ids_stride, row * given.out_valid_mask_stride
        given.out_token_ids_ptr[tokens] = given.sampled_token_ids_ptr[row]
        given.out_valid_mask_ptr[valid] = True
        state = given.expanded_idx_mapping_ptr[row]
        count = given.num_per_req_token_ids_ptr[state]
        if count > 0:
            source, first = given.per_req_token_ids_ptr, state * given.per_req_token_ids_stride
        else:
            source, first, count = given.topk_indices_ptr, row * given.topk_indices_stride, given.NUM_TOPK
        count = min(count, given.PADDED_COLS)
        given.out_token_ids_ptr.span(tokens + 1, count)[:] = source.span(first, count)
        given.out_valid_mask_ptr.span(valid + 1, count)[:] = True


DEFINITIONS = {
    "_topk_log_softmax_kernel": Definition(topk_log_softmax, "64ba3853d1bc9277"),
    "_ranks_kernel": Definition(ranks, "fc5760acdbe0d963"),
    "_fill_logprob_token_ids_kernel": Definition(fill_logprob_token_ids, "0a36320cada1db5d"),
}

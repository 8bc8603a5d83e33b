"""NumPy definitions of the n-gram lookup kernels in `...spec_decode.ngram.speculator`."""

import numpy as np

from workers.simulated_torch.kernel_definitions import Definition, Given

MODULE = "vllm.v1.worker.gpu.spec_decode.ngram.speculator"


def ngram_scan(programs: tuple[int, ...], given: Given) -> None:
    """Write each token block's best n-gram match: the longest, among equals the latest."""
    num_rows, num_blocks = programs[:2]
    width, shortest, longest = given.BLOCK_L, given.MIN_N, given.MAX_N
    for row in range(num_rows):
        state = given.idx_mapping_ptr[row]
        length = given.total_len_ptr[state]
        is_eligible = given.num_sampled_ptr[row] > 0 and length >= shortest
        for block in range(num_blocks):
            begin, best = block * width, 0
            if is_eligible and begin <= length - shortest - 1:
                tokens = given.token_ids_ptr.span(state * given.token_ids_stride, length)
                for size in range(shortest, longest + 1):
                    # Positions before the first token hold -1, which matches no token.
                    suffix = [tokens[at] if at >= 0 else -1 for at in range(length - size, length)]
                    starts = np.arange(begin, min(begin + width, length - size))
                    matches = np.ones(len(starts), dtype=bool)
                    for at, token in enumerate(suffix):
                        matches &= tokens[starts + at] == token
                    if matches.any():
                        best = size * (given.L + 1) + int(starts[matches][-1]) + 1
            given.scratch_ptr[row * given.scratch_stride + block] = best


def ngram_finalize(programs: tuple[int, ...], given: Given) -> None:
    """Write the tokens after each row's best match as drafts; pad with the last sampled token."""
    for row in range(programs[0]):
        state = given.idx_mapping_ptr[row]
        scores = given.scratch_ptr.span(row * given.scratch_stride, given.N_BLOCKS)
        score, length = max(0, int(scores.max(initial=0))), given.total_len_ptr[state]
        size, position = divmod(score - 1, given.L + 1)
        start = position + size
        is_found = score > 0 and given.num_sampled_ptr[row] > 0
        last = given.last_sampled_ptr[state]
        for draft in range(given.K):
            if is_found and draft < length - start:
                at = min(start + draft, given.L - 1)
                given.drafts_ptr[row * given.K + draft] = given.token_ids_ptr[state * given.token_ids_stride + at]
            else:
                given.drafts_ptr[row * given.K + draft] = last


DEFINITIONS = {
    "_ngram_scan_kernel": Definition(ngram_scan, "ea5ad01e0b387af8"),
    "_ngram_finalize_kernel": Definition(ngram_finalize, "cb9d46fe9c713f51"),
}

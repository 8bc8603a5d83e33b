"""NumPy definitions of the n-gram lookup kernels in `...spec_decode.ngram.speculator`."""

import numpy as np

from workers.simulated_torch.kernel_definitions import Definition, Given

MODULE = "vllm.v1.worker.gpu.spec_decode.ngram.speculator"


def ngram_scan(programs: tuple[int, ...], args: Given) -> None:
    """Write the best n-gram match in each block of tokens: longest, on a tie the latest."""
    num_rows, num_blocks = programs[:2]
    width, shortest, longest = args.BLOCK_L, args.MIN_N, args.MAX_N
    for row in range(num_rows):
        state = args.idx_mapping_ptr[row]
        length = args.total_len_ptr[state]
        is_eligible = args.num_sampled_ptr[row] > 0 and length >= shortest
        for block in range(num_blocks):
            begin, best = block * width, 0
            if is_eligible and begin <= length - shortest - 1:
                tokens = args.token_ids_ptr.span(state * args.token_ids_stride, length)
                for size in range(shortest, longest + 1):
                    # Positions before the first token hold -1, which matches no token.
                    suffix = [tokens[at] if at >= 0 else -1 for at in range(length - size, length)]
                    starts = np.arange(begin, min(begin + width, length - size))
                    matches = np.ones(len(starts), dtype=bool)
                    for at, token in enumerate(suffix):
                        matches &= tokens[starts + at] == token
                    if matches.any():
                        best = size * (args.L + 1) + int(starts[matches][-1]) + 1
            args.scratch_ptr[row * args.scratch_stride + block] = best


def ngram_finalize(programs: tuple[int, ...], args: Given) -> None:
    """Write the tokens after each row's best match as drafts; pad with the last sampled token."""
    for row in range(programs[0]):
        state = args.idx_mapping_ptr[row]
        scores = args.scratch_ptr.span(row * args.scratch_stride, args.N_BLOCKS)
        score, length = max(0, int(scores.max(initial=0))), args.total_len_ptr[state]
        size, position = divmod(score - 1, args.L + 1)
        start = position + size
        is_found = score > 0 and args.num_sampled_ptr[row] > 0
        last = args.last_sampled_ptr[state]
        for draft in range(args.K):
            if is_found and draft < length - start:
                at = min(start + draft, args.L - 1)
                args.drafts_ptr[row * args.K + draft] = args.token_ids_ptr[state * args.token_ids_stride + at]
            else:
                args.drafts_ptr[row * args.K + draft] = last


DEFINITIONS = {
    "_ngram_scan_kernel": Definition(ngram_scan, "ea5ad01e0b387af8"),
    "_ngram_finalize_kernel": Definition(ngram_finalize, "cb9d46fe9c713f51"),
}

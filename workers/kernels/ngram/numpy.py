"""N-gram drafter on the device: propose the tokens after a match of the last tokens."""

import numpy as np

from workers.kernels.arithmetic.numpy import as_uint64, store
from workers.kernels.ngram.definition import NGRAM_MAX, NgramSearch, WriteTokens
from workers.kernels.sentinels import NO_DRAFT


def write_tokens(a: WriteTokens) -> None:
    store(a.drafter_kv, a.slots, as_uint64(a.input_ids))


def ngram_search(a: NgramSearch) -> None:
    a.draft_tokens.fill(NO_DRAFT)
    cached = a.drafter_kv.view(np.int64).reshape(-1, a.block_size)
    rows = zip(a.positions[a.token_index].tolist(), a.next_tokens.tolist(), a.valid.tolist(), strict=True)
    # Lists of numbers, because a history is short and a search in it ends soon.
    for row, (last, token, valid) in enumerate(rows):
        if valid > 0:
            blocks = a.block_table[row * a.max_blocks : row * a.max_blocks + 1 + last // a.block_size]
            history = [*cached.take(blocks, axis=0, mode="clip").ravel()[: last + 1].tolist(), token]
            end = _end_of_longest_match(history)
            found = history[end : end + a.num_proposed]
            first = row * a.num_speculative_tokens
            a.draft_tokens[first : first + len(found)] = found


def _end_of_longest_match(history: list[int]) -> int:
    """Return the end of the longest earlier match of the last tokens; the rightmost of equals.

    The length if none.
    """
    suffix, longest, end_of_match = history[::-1][:NGRAM_MAX], 0, len(history)
    for end in range(len(history) - 1, 0, -1):
        if history[end - 1] == suffix[0]:
            length = 1
            while length < min(NGRAM_MAX, end) and history[end - 1 - length] == suffix[length]:
                length += 1
            if length > longest:
                longest, end_of_match = length, end
    return end_of_match

"""Prompt lookup on the device: find the last tokens earlier in the row's history, propose what followed them there.

Source: Saxena, "Prompt lookup decoding", 2023; vLLM's `ngram_gpu` proposer: longest match first, then the rightmost.
"""

import numpy as np

from workers.kernels.arithmetic.vectorised import arange, cached_words, column, store, words
from workers.kernels.drafting.vectorised import propose
from workers.kernels.ngram.arguments import NGRAM_MAX, NgramSearch, WriteTokens
from workers.kernels.sentinels import NO_DRAFT


def write_tokens(a: WriteTokens) -> None:
    """Write the id of every token that has a slot: the history of a row lies in its blocks."""
    store(a.drafter_kv, a.slots, words(a.input_ids))


def ngram_search(a: NgramSearch) -> None:
    """Propose for each row what followed the longest earlier match of its last 1 to NGRAM_MAX tokens."""
    num_rows, length = len(a.token_index), a.num_blocks_max * a.block_size
    end = a.positions.take(a.token_index) + 1
    history = np.zeros((num_rows, length + 1), dtype=np.uint64)
    history[:, :length] = cached_words(a.drafter_kv, a.block_table, a.block_size, a.max_blocks, a.num_blocks_max)
    rows = column(num_rows)
    history[arange(num_rows), end] = words(a.next_tokens)

    at = arange(length + 1)
    matched = np.zeros((num_rows, length + 1), dtype=np.int64)
    goes_on = at < end[:, None]
    for back in range(NGRAM_MAX):
        suffix = history[rows, np.maximum(end - back, 0)[:, None]]
        goes_on = goes_on & (at >= back) & (history[:, np.maximum(at - back, 0)] == suffix)
        matched += goes_on
    # Where nothing matches that is the place behind all others, and nothing follows it.
    place = (matched * (length + 1) + at).argmax(axis=1)
    follows = place[:, None] + 1 + arange(a.num_proposed)
    known = follows <= end[:, None]
    tokens = history[rows, np.minimum(follows, length)].view(np.int64)
    propose(a.draft_tokens.reshape(num_rows, a.num_speculative_tokens), np.where(known, tokens, NO_DRAFT), a.valid)

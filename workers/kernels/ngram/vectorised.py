"""Prompt lookup on the device: find the last tokens earlier in the row's history, propose what followed them there.

Source: Saxena, "Prompt lookup decoding", 2023; vLLM's `ngram_gpu` proposer: longest match first, then the rightmost.
"""

import numpy as np

from workers.kernels.arithmetic.vectorised import arange, column, store, words
from workers.kernels.drafting.vectorised import propose
from workers.kernels.ngram.arguments import NGRAM_MAX, NgramSearch, WriteTokens
from workers.kernels.sentinels import NO_DRAFT


def write_tokens(a: WriteTokens) -> None:
    """Write the id of every token that has a slot: the history of a row lies in its blocks."""
    store(a.drafter_kv, a.slots, words(a.input_ids))


def ngram_search(a: NgramSearch) -> None:
    """Propose for each row what followed the longest earlier match of its last 1 to NGRAM_MAX tokens."""
    num_rows, length = len(a.token_index), a.num_blocks_max * a.block_size
    table = np.maximum(a.block_table.reshape(num_rows, a.max_blocks)[:, : a.num_blocks_max], 0)
    end = a.positions.take(a.token_index) + 1
    history = np.zeros((num_rows, length + 1), dtype=np.uint64)
    history[:, :length] = a.drafter_kv.reshape(-1, a.block_size)[table].reshape(num_rows, length)
    rows = column(num_rows)
    history[rows[:, 0], end] = words(np.maximum(a.next_tokens, 0))

    at = arange(length + 1)
    matched = np.zeros((num_rows, length + 1), dtype=np.int64)
    goes_on = at < end[:, None]
    for back in range(NGRAM_MAX):
        suffix = history[rows, np.maximum(end - back, 0)[:, None]]
        goes_on = goes_on & (at >= back) & (history[:, np.maximum(at - back, 0)] == suffix)
        matched += goes_on
    place = (matched * (length + 1) + at).argmax(axis=1)
    found = matched[rows[:, 0], place] > 0
    follows = place[:, None] + 1 + arange(a.num_proposed)
    known = found[:, None] & (follows <= end[:, None])
    tokens = history[rows, np.minimum(follows, length)].view(np.int64)
    propose(a.draft_tokens.reshape(num_rows, a.num_speculative_tokens), np.where(known, tokens, NO_DRAFT), a.valid)

"""Prompt lookup on the device: find the last tokens earlier in the row's history, propose what followed them there.

Source: Saxena, "Prompt lookup decoding", 2023; vLLM's `ngram_gpu` proposer: longest match first, then the rightmost.
"""

import numpy as np

from workers.kernels.arithmetic import arange, column, words
from workers.kernels.drafting import propose
from workers.kernels.signature import NO_DRAFT, In, InOut, Out

NGRAM_MAX = 3


def write_tokens(input_ids: In, slots: In, drafter_kv: InOut) -> None:
    """Write the id of every token that has a slot: the history of a row lies in its blocks.

    Shapes: input_ids, slots [num_tokens]; drafter_kv [num_blocks * block_size] uint64.
    """
    real = slots >= 0
    drafter_kv[slots[real]] = words(input_ids)[real]


def ngram_search(
    next_tokens: In,
    positions: In,
    token_index: In,
    valid: In,
    block_table: In,
    drafter_kv: In,
    draft_tokens: Out,
    block_size: int,
    max_blocks: int,
    num_blocks_max: int,
    num_speculative_tokens: int,
    num_proposed: int,
) -> None:
    """Propose for each row what followed the longest earlier match of its last 1 to NGRAM_MAX tokens.

    Shapes: positions [num_tokens]; next_tokens, token_index, valid [num_rows]; block_table [num_rows * max_blocks];
    drafter_kv [num_blocks * block_size] uint64, token ids; draft_tokens [num_rows * K]. The history of a row ends with
    its next token, which the host has not seen. Of equally long matches the rightmost counts. NO_DRAFT where the
    history ends, where nothing matches, and in rows without a valid token.
    """
    num_rows, length = len(token_index), num_blocks_max * block_size
    table = np.maximum(block_table.reshape(num_rows, max_blocks)[:, :num_blocks_max], 0)
    end = positions.take(token_index) + 1
    history = np.zeros((num_rows, length + 1), dtype=np.uint64)
    history[:, :length] = drafter_kv.reshape(-1, block_size)[table].reshape(num_rows, length)
    rows = column(num_rows)
    history[rows[:, 0], end] = words(np.maximum(next_tokens, 0))

    at = arange(length + 1)
    matched = np.zeros((num_rows, length + 1), dtype=np.int64)
    goes_on = at < end[:, None]
    for back in range(NGRAM_MAX):
        suffix = history[rows, np.maximum(end - back, 0)[:, None]]
        goes_on = goes_on & (at >= back) & (history[:, np.maximum(at - back, 0)] == suffix)
        matched += goes_on
    place = (matched * (length + 1) + at).argmax(axis=1)
    found = matched[rows[:, 0], place] > 0
    follows = place[:, None] + 1 + arange(num_proposed)
    known = found[:, None] & (follows <= end[:, None])
    tokens = history[rows, np.minimum(follows, length)].view(np.int64)
    propose(draft_tokens.reshape(num_rows, num_speculative_tokens), np.where(known, tokens, NO_DRAFT), valid)

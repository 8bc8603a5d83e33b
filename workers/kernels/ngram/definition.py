"""Prompt lookup, one row and one earlier position at a time."""

from collections.abc import Sequence

from workers.kernels.ngram.arguments import NGRAM_MAX, NgramSearch, WriteTokens
from workers.kernels.sentinels import NO_DRAFT, PAD_SLOT


def write_tokens(a: WriteTokens) -> None:
    """Write the id of every token that has a slot."""
    for token in range(len(a.input_ids)):
        slot = int(a.slots[token])
        if slot != PAD_SLOT:
            a.drafter_kv[slot] = a.input_ids[token]


def ngram_search(a: NgramSearch) -> None:
    """Propose for each row what followed the longest earlier match of its last tokens."""
    k = a.num_speculative_tokens
    for row in range(len(a.token_index)):
        for column in range(k):
            a.draft_tokens[row * k + column] = NO_DRAFT
        if int(a.valid[row]) <= 0:
            continue
        history = []
        for position in range(int(a.positions[int(a.token_index[row])]) + 1):
            block = int(a.block_table[row * a.max_blocks + position // a.block_size])
            history.append(int(a.drafter_kv[block * a.block_size + position % a.block_size]))
        history.append(int(a.next_tokens[row]))
        follows = _behind_the_longest_match(history)
        for column in range(min(a.num_proposed, len(history) - follows)):
            a.draft_tokens[row * k + column] = history[follows + column]


def _behind_the_longest_match(history: Sequence[int]) -> int:
    """Return the end of the rightmost of the longest earlier matches of a history's end; the length without any."""
    for length in range(NGRAM_MAX, 0, -1):
        for end in range(len(history) - 1, length - 1, -1):
            if history[end - length : end] == history[len(history) - length :]:
                return end
    return len(history)

"""N-gram drafter on the device: propose the tokens after a match of the last tokens.

Source: Saxena, "Prompt lookup decoding", 2023; vLLM's `ngram_gpu` proposer: longest match first, then the rightmost.
"""

from collections.abc import Sequence
from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, Out, arguments
from workers.kernels.sentinels import NO_DRAFT, PAD_SLOT

NGRAM_MAX = 3


@arguments
class WriteTokens(Arguments):
    """Write the step's token ids to their KV-cache slots, where the n-gram search reads them.

    A row's token history is stored in its blocks.
    """

    input_ids: Annotated[Memory, In("int64", "T")]
    slots: Annotated[Memory, In("int64", "T", of=("drafter_slots",))]
    drafter_kv: Annotated[Memory, InOut("uint64", "num_blocks * block_size")]


@arguments
class NgramSearch(Arguments):
    """Propose the tokens that follow the longest earlier match of each row's last tokens.

    A match has 1 to NGRAM_MAX tokens.

    The history of a row ends with its next token, which the host has not seen. The rightmost of equally long matches is
    used. NO_DRAFT past the end of the history, without a match, and in rows without a valid token.
    """

    next_tokens: Annotated[Memory, In("int64", "B")]
    positions: Annotated[Memory, In("int64", "T")]
    token_index: Annotated[Memory, In("int64", "B")]
    valid: Annotated[Memory, In("int64", "B")]
    block_table: Annotated[Memory, In("int64", "B * max_blocks")]
    drafter_kv: Annotated[Memory, In("uint64", "num_blocks_of_pool * block_size")]
    draft_tokens: Annotated[Memory, Out("int64", "B * K")]
    block_size: int
    max_blocks: int
    num_blocks_max: int
    num_speculative_tokens: int
    num_proposed: int


def write_tokens(a: WriteTokens) -> None:
    """Write the step's token ids to their KV-cache slots, where the n-gram search reads them."""
    for token in range(len(a.input_ids)):
        slot = int(a.slots[token])
        if slot != PAD_SLOT:
            a.drafter_kv[slot] = a.input_ids[token]


def ngram_search(a: NgramSearch) -> None:
    """Propose for each row the tokens that follow the longest earlier match of its last tokens."""
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
        follows = _end_of_longest_match(history)
        for column in range(min(a.num_proposed, len(history) - follows)):
            a.draft_tokens[row * k + column] = history[follows + column]


def _end_of_longest_match(history: Sequence[int]) -> int:
    """Return the end of the longest earlier match of the last tokens; the rightmost of equals.

    The length if none.
    """
    for length in range(NGRAM_MAX, 0, -1):
        for end in range(len(history) - 1, length - 1, -1):
            if history[end - length : end] == history[len(history) - length :]:
                return end
    return len(history)

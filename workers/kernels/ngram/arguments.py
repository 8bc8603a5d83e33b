"""Prompt lookup on the device: find the last tokens earlier in the row's history, propose what followed them there.

Source: Saxena, "Prompt lookup decoding", 2023; vLLM's `ngram_gpu` proposer: longest match first, then the rightmost.
"""

from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, Out, arguments

NGRAM_MAX = 3


@arguments
class WriteTokens(Arguments):
    """Write the id of every token that has a slot: the history of a row lies in its blocks."""

    input_ids: Annotated[Memory, In("int64", "T")]
    slots: Annotated[Memory, In("int64", "T", of=("drafter_slots",))]
    drafter_kv: Annotated[Memory, InOut("uint64", "num_blocks * block_size")]


@arguments
class NgramSearch(Arguments):
    """Propose for each row what followed the longest earlier match of its last 1 to NGRAM_MAX tokens.

    The history of a row ends with its next token, which the host has not seen. Of equally long matches the
    rightmost counts. NO_DRAFT where the history ends, where nothing matches, and in rows without a valid token.
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

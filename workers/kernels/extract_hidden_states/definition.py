"""Hidden-state extraction: write the target's hidden states to a cache for a consumer.

Source: vLLM's `extract_hidden_states` proposer, which proposes the token just sampled as its only draft token.
"""

from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, Out, arguments
from workers.kernels.sentinels import NO_DRAFT, PAD_SLOT


@arguments
class ExtractHiddenStates(Arguments):
    """Write the target's hidden state of each token that has a slot to the cache.

    Propose each row's next token as its draft token.

    A row without a valid token proposes NO_DRAFT.
    """

    hidden: Annotated[Memory, In("uint64", "T")]
    slots: Annotated[Memory, In("int64", "T", of=("drafter_slots",))]
    next_tokens: Annotated[Memory, In("int64", "B")]
    valid: Annotated[Memory, In("int64", "B")]
    drafter_kv: Annotated[Memory, InOut("uint64", "num_blocks * block_size")]
    draft_tokens: Annotated[Memory, Out("int64", "B * K")]
    num_speculative_tokens: int
    num_proposed: int


def extract_hidden_states(a: ExtractHiddenStates) -> None:
    """Write the target's hidden state of each token that has a slot to the cache.

    Propose each row's next token as its draft token.
    """
    for token in range(len(a.hidden)):
        slot = int(a.slots[token])
        if slot != PAD_SLOT:
            a.drafter_kv[slot] = a.hidden[token]
    k = a.num_speculative_tokens
    for row in range(len(a.valid)):
        for column in range(k):
            is_proposed = int(a.valid[row]) > 0 and column < a.num_proposed
            a.draft_tokens[row * k + column] = a.next_tokens[row] if is_proposed else NO_DRAFT

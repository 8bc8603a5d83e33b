"""Extraction of hidden states: the target's hidden words are written out for a consumer.

Source: vLLM's `extract_hidden_states` proposer, whose one draft is the token that was just sampled.
"""

from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, Out, arguments


@arguments
class ExtractHiddenStates(Arguments):
    """Write the hidden word of every token that has a slot, and propose each row's next token once more.

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

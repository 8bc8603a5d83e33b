"""Medusa heads: one small model a future position, over the hidden word of the last accepted token, without a cache.

Source: Medusa, arXiv 2401.10774, section 2.1; vLLM's `medusa` proposer for the row that the heads are fed.
"""

from typing import Annotated

from workers.kernels.argument import Arguments, In, Memory, Out, arguments


@arguments
class MedusaHeads(Arguments):
    """Propose `num_proposed` drafts for each row at once, a head each, from the hidden word of its last kept token.

    `raw` is what a head computes, the draft is the script's: no head sees the token that was just sampled, nor
    another head's draft. A row without a valid token proposes NO_DRAFT. In padding rows `raw` is 0.
    """

    hidden: Annotated[Memory, In("uint64", "T")]
    positions: Annotated[Memory, In("int64", "T")]
    token_index: Annotated[Memory, In("int64", "B")]
    num_scheduled: Annotated[Memory, In("int64", "B")]
    valid: Annotated[Memory, In("int64", "B")]
    state_slot: Annotated[Memory, In("int64", "B")]
    script: Annotated[Memory, In("int64", "num_state_slots * max_model_len")]
    raw: Annotated[Memory, Out("uint64", "B * K")]
    draft_tokens: Annotated[Memory, Out("int64", "B * K")]
    max_model_len: int
    num_speculative_tokens: int
    num_proposed: int

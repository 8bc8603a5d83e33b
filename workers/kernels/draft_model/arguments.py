"""A standalone draft model: the target's layers on caches of its own, and a chain that predicts from them.

Source: Leviathan et al., arXiv 2211.17192; vLLM's `draft_model` proposer for the tokens that are not shifted.
"""

from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, Out, arguments
from workers.kernels.attention.arguments import Attention
from workers.kernels.drafting.shared_arguments import CachedDrafts
from workers.kernels.recurrent_update.arguments import RecurrentUpdate


@arguments
class DraftModelPass(Arguments):
    """Run the draft model over the tokens of the step, so that its caches catch up with the target's.

    `accepted` is the count of the step before. Tokens behind a row's last kept one (`token_index`) are rejected
    drafts: they have no place in the cache.
    """

    input_ids: Annotated[Memory, In("int64", "T")]
    positions: Annotated[Memory, In("int64", "T")]
    slots: Annotated[Memory, In("int64", "T", of=("drafter_slots",))]
    token_row: Annotated[Memory, In("int64", "T")]
    token_index: Annotated[Memory, In("int64", "B")]
    block_table: Annotated[Memory, In("int64", "B * max_blocks")]
    num_computed: Annotated[Memory, In("int64", "B")]
    query_start: Annotated[Memory, In("int64", "B")]
    num_scheduled: Annotated[Memory, In("int64", "B")]
    num_drafts: Annotated[Memory, In("int64", "B")]
    state_slot: Annotated[Memory, In("int64", "B")]
    accepted: Annotated[Memory, In("int64", "B", of=("accepted_read", "accepted_host"))]
    drafter_hidden: Annotated[Memory, Out("uint64", "T")]
    drafter_attended: Annotated[Memory, Out("uint64", "T")]
    drafter_states: Annotated[Memory, InOut("uint64", "num_state_slots * (2 + K)")]
    drafter_conv: Annotated[Memory, InOut("uint64", "num_state_slots * (W + K)")]
    drafter_kv: Annotated[Memory, InOut("uint64", "num_blocks * block_size")]
    block_size: int
    max_blocks: int
    num_blocks_max: int
    num_queries_max: int
    num_speculative_tokens: int
    conv_width: int


@arguments
class DraftModelChain(CachedDrafts):
    """Predict `num_proposed` tokens for each row, one after the other, beginning with its next token.

    `raw` is the model's last hidden word, `own` the argmax of its logits, lowest first. The draft is `own` plus
    the script's entry at its position, modulo the vocabulary: 0 leaves it, 1 makes it wrong. The chain goes on
    from its drafts. A row without a valid token proposes NO_DRAFT. What the chain writes to the cache is scratch;
    it leaves the recurrent states alone. In padding rows `raw` is 0 and `own` NO_DRAFT.
    """

    next_tokens: Annotated[Memory, In("int64", "B")]
    accepted: Annotated[Memory, In("int64", "B")]
    drafter_states: Annotated[Memory, In("uint64", "num_state_slots * (2 + K)")]
    drafter_conv: Annotated[Memory, In("uint64", "num_state_slots * (W + K)")]
    own: Annotated[Memory, Out("int64", "B * K")]
    vocab_size: int
    conv_width: int


def attention_of(a: DraftModelPass) -> Attention:
    """Return the arguments of the pass's attention layer."""
    return Attention(
        kv=a.drafter_kv,
        block_table=a.block_table,
        token_row=a.token_row,
        positions=a.positions,
        hidden=a.drafter_hidden,
        output=a.drafter_attended,
        block_size=a.block_size,
        max_blocks=a.max_blocks,
        num_blocks_max=a.num_blocks_max,
    )


def recurrent_update_of(a: DraftModelPass) -> RecurrentUpdate:
    """Return the arguments of the pass's recurrent layer."""
    return RecurrentUpdate(
        hidden=a.drafter_hidden,
        num_computed=a.num_computed,
        query_start=a.query_start,
        num_scheduled=a.num_scheduled,
        num_drafts=a.num_drafts,
        state_slot=a.state_slot,
        accepted=a.accepted,
        states=a.drafter_states,
        conv=a.drafter_conv,
        num_queries_max=a.num_queries_max,
        num_speculative_tokens=a.num_speculative_tokens,
        conv_width=a.conv_width,
    )

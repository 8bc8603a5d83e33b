"""A multi-token-prediction layer: at each position it sees the token there and the target's hidden word before it.

Source: DeepSeek-V3, arXiv 2412.19437, section 2.2; ik_llama.cpp PR #2222 for the word carried from step to step.
"""

from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, arguments
from workers.kernels.drafting.shared_arguments import CachedDrafts


@arguments
class MtpPass(Arguments):
    """Write the layer's cache for every token of the step, and carry each row's last kept hidden word to the next.

    The first token of a row follows the word its step before left in `carried`, or 0 if the row has computed
    nothing. A row that keeps nothing of this step keeps what it carried. Padding rows (slot < 0) come last.
    """

    hidden: Annotated[Memory, In("uint64", "T")]
    input_ids: Annotated[Memory, In("int64", "T")]
    positions: Annotated[Memory, In("int64", "T")]
    slots: Annotated[Memory, In("int64", "T", of=("drafter_slots",))]
    query_start: Annotated[Memory, In("int64", "B")]
    num_computed: Annotated[Memory, In("int64", "B")]
    accepted: Annotated[Memory, In("int64", "B")]
    token_index: Annotated[Memory, In("int64", "B")]
    state_slot: Annotated[Memory, In("int64", "B")]
    carried: Annotated[Memory, InOut("uint64", "num_state_slots")]
    drafter_kv: Annotated[Memory, InOut("uint64", "num_blocks * block_size")]


@arguments
class MtpChain(CachedDrafts):
    """Propose `num_proposed` drafts for each row: the layer runs on its next token, then on its own output.

    `raw` is what the layer computes, the draft is the script's. A row without a valid token proposes NO_DRAFT. What
    the chain writes to the cache is scratch. In padding rows `raw` is 0.
    """

    hidden: Annotated[Memory, In("uint64", "T")]
    next_tokens: Annotated[Memory, In("int64", "B")]

"""The EAGLE-like drafter: a first pass over the target's tokens, then a chain of single tokens.

Source: EAGLE, arXiv 2401.15077, for the shape: hidden words of the target beside the token that follows.
"""

from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, Out, arguments
from workers.kernels.drafting.shared_arguments import CachedDrafts


@arguments
class DraftFirstPass(Arguments):
    """Write the drafter's cache for every token of the step, fed with the token that follows it.

    The token after a row's last kept one is its next token; what is written for rejected tokens is scratch. Padding
    rows come last.
    """

    hidden: Annotated[Memory, In("uint64", "T")]
    input_ids: Annotated[Memory, In("int64", "T")]
    positions: Annotated[Memory, In("int64", "T")]
    slots: Annotated[Memory, In("int64", "T", of=("drafter_slots",))]
    token_index: Annotated[Memory, In("int64", "B")]
    next_tokens: Annotated[Memory, In("int64", "B")]
    num_scheduled: Annotated[Memory, In("int64", "B")]
    drafter_hidden: Annotated[Memory, Out("uint64", "T")]
    drafter_kv: Annotated[Memory, InOut("uint64", "num_blocks * block_size")]


@arguments
class DraftChain(CachedDrafts):
    """Propose `num_proposed` drafts for each row.

    The drafter attends over its own cache; the word it computes is `raw`, the token it proposes is the script's at
    that position. A row without a valid token proposes NO_DRAFT, as do columns from `num_proposed` on. What the
    chain writes to the cache, at `draft_slots`, is scratch. Padding rows come last; their `raw` is 0.
    """

    drafter_hidden: Annotated[Memory, In("uint64", "T")]
    draft_slots: Annotated[Memory, In("int64", "B * K")]

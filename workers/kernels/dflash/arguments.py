"""A block drafter: all drafts of a row come out of one pass over masked positions that see each other.

Source: DFlash, arXiv 2602.06036, for the block behind a context of the target's hidden words.
"""

from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, arguments
from workers.kernels.drafting.shared_arguments import CachedDrafts


@arguments
class DflashContext(Arguments):
    """Write the drafter's context: the cache word of the target's hidden word of every token that has a slot."""

    hidden: Annotated[Memory, In("uint64", "T")]
    positions: Annotated[Memory, In("int64", "T")]
    slots: Annotated[Memory, In("int64", "T", of=("drafter_slots",))]
    drafter_kv: Annotated[Memory, InOut("uint64", "num_blocks * block_size")]


@arguments
class DflashBlock(CachedDrafts):
    """Propose `num_proposed` drafts for each row at once, from the hidden word of its last kept token.

    The block is the next token and `num_proposed` masks (id `vocab_size`) at the positions behind the context; each
    sees the whole context, and all of the block with weight 2 |distance| + 1. `raw` is what comes out at a mask,
    the draft is the script's. A row without a valid token proposes NO_DRAFT. The block's cache words are scratch.
    In padding rows `raw` is 0.
    """

    hidden: Annotated[Memory, In("uint64", "T")]
    next_tokens: Annotated[Memory, In("int64", "B")]
    vocab_size: int

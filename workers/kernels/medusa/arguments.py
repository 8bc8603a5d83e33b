"""Medusa heads: one small model a future position, over the hidden word of the last accepted token, without a cache.

Source: Medusa, arXiv 2401.10774, section 2.1; vLLM's `medusa` proposer for the row that the heads are fed.
"""

from typing import Annotated

from workers.kernels.argument import In, Memory, arguments
from workers.kernels.drafting.shared_arguments import ScriptedDrafts


@arguments
class MedusaHeads(ScriptedDrafts):
    """Propose `num_proposed` drafts for each row at once, a head each, from the hidden word of its last kept token.

    `raw` is what a head computes, the draft is the script's: no head sees the token that was just sampled, nor
    another head's draft. A row without a valid token proposes NO_DRAFT. In padding rows `raw` is 0.
    """

    hidden: Annotated[Memory, In("uint64", "T")]

"""Medusa heads: one small model per future position; no KV cache.

Source: Medusa, arXiv 2401.10774, section 2.1; vLLM's `medusa` proposer for the row that the heads read.
"""

from typing import Annotated

from workers.kernels.argument import In, Memory, arguments
from workers.kernels.arithmetic.definition import draft_hidden
from workers.kernels.drafting.definition import script_entry
from workers.kernels.drafting.shared_arguments import ScriptedDrafts
from workers.kernels.sentinels import NO_DRAFT


@arguments
class MedusaHeads(ScriptedDrafts):
    """Propose one draft token per head and row, from the last kept token's hidden state.

    `raw` is a head's output; the draft token is the script's. No head sees the token just sampled, or another head's
    draft token. A row without a valid token proposes NO_DRAFT. In padding rows `raw` is 0.
    """

    hidden: Annotated[Memory, In("uint64", "T")]


def medusa_heads(a: MedusaHeads) -> None:
    """Propose one draft token per head and row, from the last kept token's hidden state."""
    k = a.num_speculative_tokens
    for row in range(len(a.token_index)):
        for head in range(k):
            raw, draft = 0, NO_DRAFT
            if a.num_scheduled[row] > 0 and head < a.num_proposed:
                last = a.token_index[row]
                raw = draft_hidden(int(a.hidden[last]), head)
                if a.valid[row] > 0:
                    draft = script_entry(a, row, int(a.positions[last]) + 2 + head)
            a.raw[row * k + head] = raw
            a.draft_tokens[row * k + head] = draft

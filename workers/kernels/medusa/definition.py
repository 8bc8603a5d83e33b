"""Definition of the medusa heads: a loop over rows and heads."""

from workers.kernels.arithmetic.definition import draft_hidden
from workers.kernels.drafting.definition import scripted
from workers.kernels.medusa.arguments import MedusaHeads
from workers.kernels.sentinels import NO_DRAFT


def medusa_heads(a: MedusaHeads) -> None:
    """Propose `num_proposed` drafts for each row at once, a head each, from the hidden word of its last kept token."""
    k = a.num_speculative_tokens
    for row in range(len(a.token_index)):
        for head in range(k):
            raw, draft = 0, NO_DRAFT
            if a.num_scheduled[row] > 0 and head < a.num_proposed:
                last = a.token_index[row]
                raw = draft_hidden(int(a.hidden[last]), head)
                if a.valid[row] > 0:
                    draft = scripted(a, row, int(a.positions[last]) + 2 + head)
            a.raw[row * k + head] = raw
            a.draft_tokens[row * k + head] = draft

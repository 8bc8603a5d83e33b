"""No drafter at all: the target's hidden words are written out for whoever consumes them.

Source: vLLM's `extract_hidden_states` proposer, whose one draft is the token that was just sampled.
"""

import numpy as np

from workers.kernels.drafting import propose
from workers.kernels.signature import In, InOut, Out


def extract_hidden_states(
    hidden: In,
    slots: In,
    next_tokens: In,
    valid: In,
    drafter_kv: InOut,
    draft_tokens: Out,
    num_speculative_tokens: int,
    num_proposed: int,
) -> None:
    """Write the hidden word of every token that has a slot, and propose each row's next token once more.

    Shapes: hidden, slots [num_tokens]; next_tokens, valid [num_rows]; drafter_kv [num_blocks * block_size] uint64;
    draft_tokens [num_rows * K], K at most 1. A row without a valid token proposes NO_DRAFT.
    """
    real = slots >= 0
    drafter_kv[slots[real]] = hidden[real]
    tokens = draft_tokens.reshape(len(valid), num_speculative_tokens)
    propose(tokens, np.repeat(next_tokens[:, None], num_proposed, axis=1), valid)

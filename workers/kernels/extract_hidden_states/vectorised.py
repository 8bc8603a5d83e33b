"""Extraction of hidden states: the target's hidden words are written out for whoever consumes them.

Source: vLLM's `extract_hidden_states` proposer, whose one draft is the token that was just sampled.
"""

import numpy as np

from workers.kernels.arithmetic.vectorised import store
from workers.kernels.drafting.vectorised import propose
from workers.kernels.extract_hidden_states.arguments import ExtractHiddenStates


def extract_hidden_states(a: ExtractHiddenStates) -> None:
    """Write the hidden word of every token that has a slot, and propose each row's next token once more."""
    store(a.drafter_kv, a.slots, a.hidden)
    tokens = a.draft_tokens.reshape(len(a.valid), a.num_speculative_tokens)
    propose(tokens, np.repeat(a.next_tokens[:, None], a.num_proposed, axis=1), a.valid)

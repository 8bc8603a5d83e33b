"""Definition of the extraction of hidden states, which are written out for whoever consumes them: a loop over tokens.

Source: vLLM's `extract_hidden_states` proposer, whose one draft is the token that was just sampled.
"""

from workers.kernels.extract_hidden_states.arguments import ExtractHiddenStates
from workers.kernels.sentinels import NO_DRAFT, PAD_SLOT


def extract_hidden_states(a: ExtractHiddenStates) -> None:
    """Write the hidden word of every token that has a slot, and propose each row's next token once more."""
    for token in range(len(a.hidden)):
        slot = int(a.slots[token])
        if slot != PAD_SLOT:
            a.drafter_kv[slot] = a.hidden[token]
    k = a.num_speculative_tokens
    for row in range(len(a.valid)):
        for column in range(k):
            is_proposed = int(a.valid[row]) > 0 and column < a.num_proposed
            a.draft_tokens[row * k + column] = a.next_tokens[row] if is_proposed else NO_DRAFT

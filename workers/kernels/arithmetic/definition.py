"""Integer model in place of an LLM: each hidden state or KV entry is one 64-bit integer.

Every op's definition uses it.
"""

from collections.abc import Sequence

WORDS = 1 << 64
GOLDEN = 0x9E3779B97F4A7C15
POSITION = 0xD6E8FEB86659FD93
LAYER = 0xA0761D6478BD642F
VOCABULARY = 0xE7037ED1A0B428DB
DECAY = 0x5851F42D4C957F2D
MULTIPLIER = 0x2127599BF4325C37
DRAFTER_LAYER = 64
LOGIT_SHIFT = 40
# Number of ids with a hidden state: all ids of the largest vocabulary, and the mask id that follows them.
NUM_EMBEDDED = (1 << 16) + 1
# Positions of the longest model, plus positions of draft tokens past its end.
POSITIONS_MAX = (1 << 16) + 64


def mix(word: int) -> int:
    """Scramble 64 bits (the finalizer of fast-hash)."""
    word = word % WORDS
    word = word ^ (word >> 23)
    word = word * MULTIPLIER % WORDS
    return word ^ (word >> 47)


def embed(token: int) -> int:
    """Return the hidden state (one 64-bit integer) of a token id; a negative id counts as 0."""
    return mix((max(token, 0) + 1) * GOLDEN)


def kv_entry(hidden: int, position: int, layer: int) -> int:
    """Return the KV entry of an attention layer for a token at a position."""
    return mix(hidden + (2 * position + 1) * POSITION + layer * LAYER)


def attention_weight(position: int, at: int) -> int:
    """Return 2 (position - at) + 1, the attention weight of the KV entry at position `at`.

    1 for its own position.
    """
    return 2 * (position - at) + 1


def after_attention(hidden: int, output: int) -> int:
    """Return the hidden state after an attention layer."""
    return mix(hidden + output)


def convolve(window: Sequence[int]) -> int:
    """Return what a convolution window (inputs, oldest first) adds to the recurrent state.

    The newest has weight GOLDEN.
    """
    total = 0
    for age in range(len(window)):
        total += window[len(window) - 1 - age] * (2 * age + 1) * GOLDEN
    return mix(total)


def advance(state: int, window: Sequence[int]) -> int:
    """Return the recurrent state after one more token, the last input of the window."""
    return (state * DECAY + convolve(window)) % WORDS


def after_recurrent(hidden: int, state: int) -> int:
    """Return the hidden state after a recurrent layer."""
    return mix(hidden + state)


def logit(hidden: int, token: int) -> int:
    """Return the logit of a token id: an integer below 2^24, so that float32 holds it exactly."""
    return mix(hidden + (token + 1) * VOCABULARY) >> LOGIT_SHIFT


def draft_hidden(hidden: int, token: int) -> int:
    """Return the drafter's input: a hidden state combined with the token after it."""
    return mix(3 * hidden + embed(token))

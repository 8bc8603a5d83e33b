"""Arithmetic of the integer model on Triton blocks; equal to the definition.

Words are uint64 wherever a value is multiplied or shifted, so products wrap modulo 2^64 and shifts are logical. Token
ids and positions are int64; positions are not negative.
"""

import triton
import triton.language as tl

from workers.kernels.arithmetic import definition

GOLDEN = tl.constexpr(definition.GOLDEN)
POSITION = tl.constexpr(definition.POSITION)
LAYER = tl.constexpr(definition.LAYER)
VOCABULARY = tl.constexpr(definition.VOCABULARY)
DECAY = tl.constexpr(definition.DECAY)
DRAFTER_LAYER = tl.constexpr(definition.DRAFTER_LAYER)
LOGIT_SHIFT = tl.constexpr(definition.LOGIT_SHIFT)

_MULTIPLIER = tl.constexpr(definition.MULTIPLIER)
_MASK = tl.constexpr(definition.WORDS - 1)


@triton.jit
def mix(b_x):
    """Scramble 64-bit integers (a hash)."""
    b_x ^= b_x >> 23
    b_x *= _MULTIPLIER
    return b_x ^ (b_x >> 47)


@triton.jit
def embed(b_token):
    return mix((tl.maximum(b_token, 0).to(tl.uint64) + 1) * GOLDEN)


@triton.jit
def kv_entry(b_hidden, b_position, layer: tl.constexpr):
    b_place = (b_position.to(tl.uint64) * 2 + 1) * POSITION
    return mix(b_hidden + b_place + (layer * LAYER & _MASK))


@triton.jit
def attention(b_sum, b_sum_position, b_position):
    """Return the attention output from the sums of kv and of kv * position."""
    return (b_position.to(tl.uint64) * 2 + 1) * b_sum - b_sum_position * 2


@triton.jit
def draft_hidden(b_hidden, b_token):
    return mix(embed(b_token) + b_hidden * 3)


@triton.jit
def window_weight(b_age):
    """Return the weight of an input in a convolution window; the newest has age 0."""
    return (b_age.to(tl.uint64) * 2 + 1) * GOLDEN


@triton.jit
def logit(b_hidden, b_token):
    """Return the logits of token ids: integers below 2^24, exact in float32."""
    return (mix(b_hidden + (b_token.to(tl.uint64) + 1) * VOCABULARY) >> LOGIT_SHIFT).to(tl.float32)

"""Drafts drawn from a draft model's distribution, whose logits are kept until the drafts are verified."""

from typing import Any

import numpy as np

from workers.kernels.arithmetic.vectorised import (
    ONE,
    TWO,
    Integers,
    Words,
    integer,
    mix,
    repeated,
    scores,
    tiled,
    words,
)
from workers.kernels.draft_model.vectorised import run_chain
from workers.kernels.draft_sampling.arguments import NUMBERS_PER_DRAFT, DraftNoise, DrawnChain
from workers.kernels.drafting.vectorised import scripted
from workers.kernels.draw_noise.arguments import DRAFT_STREAM
from workers.kernels.draw_noise.vectorised import philox, uniform
from workers.kernels.probabilities.blocks import block_size_of
from workers.kernels.probabilities.vectorised import Floats, pick, scale_of, weight


def draft_noise(a: DraftNoise) -> None:
    """Draw the noise of the drafts behind each row's next token."""
    num_rows, k = len(a.seeds), a.num_speculative_tokens
    row, index = repeated(num_rows, k), words(tiled(k, num_rows))
    first = words(a.positions[a.token_index[row]])
    first += TWO
    drawn = philox(words(a.seeds)[row], first, np.full_like(first, DRAFT_STREAM), index)
    a.draft_noise.reshape(-1, NUMBERS_PER_DRAFT)[:] = uniform(drawn[:NUMBERS_PER_DRAFT]).T


def drawn_chain(a: DrawnChain) -> None:
    """Predict like `draft_model_chain`, and draw the drafts of rows at a temperature whose drafts are not certain."""
    assert a.num_speculative_tokens > 0, "no draft is drawn where there are none"
    k, temperature = a.num_speculative_tokens, a.temperature_bits.astype(np.int32).view(np.float32)
    rows = np.flatnonzero((temperature > 0) & (a.point_mass == 0) & (a.valid > 0) & (a.num_scheduled > 0))
    numbers = a.draft_noise.reshape(len(a.token_index), k, NUMBERS_PER_DRAFT)[rows]
    lines, scale = a.draft_logits.reshape(-1, k, a.vocab_size), scale_of(temperature[rows])
    last = a.positions[a.token_index]
    wrong = scripted(a, last)
    block_size = block_size_of(a.vocab_size, a.tile_size, a.vocab_block_min)

    def choose(index: int, hidden: Words) -> tuple[Any, Any]:
        is_wrong = wrong[:, index]
        word = hidden.copy()
        word[rows] = np.where(is_wrong[rows] > 0, mix(hidden[rows] + ONE), hidden[rows])
        found = scores(word, a.vocab_size)
        own = found.argmax(axis=1)
        token = (own + is_wrong) % integer(a.vocab_size)
        logits = lines[a.state_slot[rows], index] = found[rows].astype(np.float32)
        token[rows] = drawn(logits, scale, numbers[:, index], block_size, a.tile_size)
        return own, token

    run_chain(choose, a, last)


def drawn(logits: Floats, scale: Floats, numbers: Floats, block_size: int, tile_size: int) -> Integers:
    """Return a token of each line of logits [N, V] by its numbers [N, 3]: its block, its tile in that, then itself."""
    num_lines, vocab_size = logits.shape
    weights = weight(logits, logits.max(axis=1, keepdims=True), scale[:, None])
    if vocab_size <= tile_size == block_size:
        return pick(weights, numbers[:, 2])
    num_blocks = -(-vocab_size // block_size)
    padded = np.zeros((num_lines, num_blocks * block_size), dtype=np.float32)
    padded[:, :vocab_size] = weights
    tiles = padded.reshape(num_lines, num_blocks, block_size // tile_size, tile_size)
    sums, lines = tiles.sum(axis=3), np.arange(num_lines)
    block = pick(sums.sum(axis=2), numbers[:, 0])
    tile = pick(sums[lines, block], numbers[:, 1])
    return block * block_size + tile * tile_size + pick(tiles[lines, block, tile], numbers[:, 2])

"""Drafts drawn from a draft model's distribution, whose logits are kept until the drafts are verified."""

from typing import Any

import numpy as np

from workers.kernels.arithmetic import LOGIT_SHIFT, ONE, Integers, Words, mix, vocabulary
from workers.kernels.draft_model import run_chain, scripted_behind
from workers.kernels.draw_noise import DRAFT_STREAM, philox, uniform
from workers.kernels.probabilities import NEVER, TILE_SIZE, Floats, block_size_of, pick, scale_of, weight
from workers.kernels.signature import In, InOut, Out

# A block of the vocabulary, a tile of that, and a token of that are selected, each by a number.
NUMBERS_PER_DRAFT = 3


def draft_noise(seeds: In, positions: In, token_index: In, draft_noise: Out, num_speculative_tokens: int) -> None:
    """Draw the noise of the drafts behind each row's next token.

    Shapes: seeds [num_rows]; positions [num_tokens]; token_index [num_rows]; draft_noise [num_rows * K * 3] float32.
    All drafts of a row have the position of the first and, beside it, their number: a draft that is not kept, and its
    noise, may have had a say in what is kept before it, so the next step draws others.
    """
    k, seed = num_speculative_tokens, seeds.astype(np.uint64)[:, None]
    first = (positions.take(token_index) + 2).astype(np.uint64)[:, None]
    drawn = philox(seed, first, DRAFT_STREAM, np.arange(k, dtype=np.uint64)[None, :])
    numbers = uniform(np.stack(drawn[:NUMBERS_PER_DRAFT], axis=-1))
    draft_noise.reshape(len(seeds), k, NUMBERS_PER_DRAFT)[:] = numbers


def drawn_chain(
    next_tokens: In,
    positions: In,
    token_index: In,
    num_scheduled: In,
    valid: In,
    accepted: In,
    state_slot: In,
    block_table: In,
    script: In,
    temperature_bits: In,
    point_mass: In,
    draft_noise: In,
    drafter_states: In,
    drafter_conv: In,
    drafter_kv: InOut,
    draft_logits: InOut,
    raw: Out,
    own: Out,
    draft_tokens: Out,
    block_size: int,
    max_blocks: int,
    num_blocks_max: int,
    max_model_len: int,
    num_speculative_tokens: int,
    num_proposed: int,
    vocab_size: int,
    conv_width: int,
) -> None:
    """Predict like `draft_model_chain`, and draw the drafts of rows at a temperature whose drafts are not certain.

    Shapes: as there; temperature_bits, point_mass [num_rows], the bits of float32 numbers; draft_noise as the op of
    that name writes it; draft_logits [num_state_slots * K * V] float32. The draft of such a row is drawn from the
    model's distribution, whose logits go to its slot. The script adds nothing to it: where it says 1 the logits are
    those of another hidden word, so that the target does not share them. `own` is the argmax of the logits that a draft
    is drawn from. A row without a valid token draws nothing and leaves its slot as it is.
    """
    k, temperature = num_speculative_tokens, temperature_bits.astype(np.int32).view(np.float32)
    rows = np.flatnonzero((temperature > 0) & (point_mass == 0) & (valid > 0) & (num_scheduled > 0))
    numbers = draft_noise.reshape(len(token_index), k, NUMBERS_PER_DRAFT)[rows]
    lines, scale = draft_logits.reshape(-1, k, vocab_size), scale_of(temperature[rows])
    wrong = scripted_behind(script, state_slot, positions, token_index, max_model_len, num_proposed)

    def choose(index: int, hidden: Words) -> tuple[Any, Any]:
        is_wrong = wrong[:, index]
        word = hidden.copy()
        word[rows] = np.where(is_wrong[rows] > 0, mix(hidden[rows] + ONE), hidden[rows])
        scores = mix(word[:, None] + vocabulary(vocab_size)) >> LOGIT_SHIFT
        own = scores.argmax(axis=1)
        token = (own + is_wrong) % vocab_size
        logits = lines[state_slot[rows], index] = scores[rows].astype(np.float32)
        token[rows] = drawn(logits, scale, numbers[:, index])
        return own, token

    run_chain(
        choose, next_tokens, positions, token_index, num_scheduled, valid, accepted, state_slot, block_table,
        drafter_states, drafter_conv, drafter_kv, raw, own, draft_tokens,
        block_size, max_blocks, num_blocks_max, max_model_len, k, num_proposed, conv_width,
    )  # fmt: skip


def drawn(logits: Floats, scale: Floats, numbers: Floats) -> Integers:
    """Return a token of each line of logits [N, V] by its numbers [N, 3]: its block, its tile in that, then itself."""
    num_lines, vocab_size = logits.shape
    block_size = block_size_of(vocab_size)
    num_blocks = -(-vocab_size // block_size)
    padded = np.zeros((num_lines, num_blocks * block_size), dtype=np.float32)
    padded[:, :vocab_size] = weight(logits, NEVER, logits.max(axis=1, keepdims=True), scale[:, None])
    tiles = padded.reshape(num_lines, num_blocks, block_size // TILE_SIZE, TILE_SIZE)
    sums, lines = tiles.sum(axis=3), np.arange(num_lines)
    block = pick(sums.sum(axis=2), numbers[:, 0])
    tile = pick(sums[lines, block], numbers[:, 1])
    return block * block_size + tile * TILE_SIZE + pick(tiles[lines, block, tile], numbers[:, 2])

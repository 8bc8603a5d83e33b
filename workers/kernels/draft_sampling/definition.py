"""Definition of drawn drafts: their noise, and the chain that draws them and keeps their logits."""

from typing import Any

import numpy as np

from workers.kernels.arithmetic.definition import logit, mix
from workers.kernels.draft_model.definition import likeliest, run_chain
from workers.kernels.draft_sampling.arguments import NUMBERS_PER_DRAFT, DraftNoise, DrawnChain
from workers.kernels.draw_noise.arguments import DRAFT_STREAM
from workers.kernels.draw_noise.definition import philox, uniform
from workers.kernels.probabilities.blocks import block_size_of
from workers.kernels.probabilities.definition import NEVER, added, pick, scale_of, weight
from workers.kernels.sampling_inputs.definition import number_of


def draft_noise(a: DraftNoise) -> None:
    """Draw the noise of the drafts behind each row's next token."""
    k = a.num_speculative_tokens
    for row in range(len(a.token_index)):
        position = int(a.positions[a.token_index[row]]) + 2
        for draft in range(k):
            words = philox(int(a.seeds[row]), position, DRAFT_STREAM, draft)
            for at in range(NUMBERS_PER_DRAFT):
                a.draft_noise[(row * k + draft) * NUMBERS_PER_DRAFT + at] = uniform(words[at])


def drawn_chain(a: DrawnChain) -> None:
    """Predict like `draft_model_chain`, and draw the drafts of rows at a temperature whose drafts are not certain."""

    def predict(row: int, index: int, hidden: int, wrong: int) -> tuple[int, int]:
        temperature = np.float32(number_of(int(a.temperature_bits[row])))
        if not (temperature > 0 and a.point_mass[row] == 0 and a.valid[row] > 0):
            own = likeliest(hidden, a.vocab_size)
            return own, (own + wrong) % a.vocab_size
        if wrong > 0:
            hidden = mix(hidden + 1)
        logits = [np.float32(logit(hidden, token)) for token in range(a.vocab_size)]
        k = a.num_speculative_tokens
        for token in range(a.vocab_size):
            a.draft_logits[(int(a.state_slot[row]) * k + index) * a.vocab_size + token] = logits[token]
        first = (row * k + index) * NUMBERS_PER_DRAFT
        return likeliest(hidden, a.vocab_size), drawn(logits, temperature, a.draft_noise[first : first + 3], a)

    run_chain(a, predict)


def drawn(logits: list[np.float32], temperature: np.float32, numbers: Any, a: DrawnChain) -> int:
    """Return a token of a line of logits by three numbers: its block, its tile in that, then itself."""
    maximum, scale = max(logits), scale_of(temperature)
    weights = [weight(each, NEVER, maximum, scale) for each in logits]
    block_size = block_size_of(len(logits), a.tile_size, a.vocab_block_min)
    blocks = parts_of(weights, block_size)
    block = pick([added(added(tile) for tile in parts_of(each, a.tile_size)) for each in blocks], numbers[0])
    tiles = parts_of(blocks[block], a.tile_size)
    tile = pick([added(each) for each in tiles], numbers[1])
    return block * block_size + tile * a.tile_size + pick(tiles[tile], numbers[2])


def parts_of(masses: list[np.float32], size: int) -> list[list[np.float32]]:
    """Return masses cut into parts of a size; the last may be shorter."""
    return [masses[first : first + size] for first in range(0, len(masses), size)]

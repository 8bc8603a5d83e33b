"""Sample draft tokens from a draft model's distribution.

The logits are kept for the rejection sampler.
"""

from typing import Annotated, Any

import numpy as np

from workers.kernels.argument import Arguments, In, InOut, Memory, Out, arguments
from workers.kernels.arithmetic.definition import logit, mix
from workers.kernels.draft_model.definition import DraftModelChain, likeliest, run_chain
from workers.kernels.draw_noise.definition import DRAFT_STREAM, philox, uniform
from workers.kernels.probabilities.blocks import block_size_of
from workers.kernels.probabilities.definition import NEVER, ordered_sum, pick, scale_of, weight

# The first number selects a block of the vocabulary, the second a tile of the block, the third a token of the tile.
NUMBERS_PER_DRAFT = 3


@arguments
class DraftNoise(Arguments):
    """Generate the random numbers that sample each row's draft tokens.

    The counter of all draft tokens of a row is the position of the first and the index of the draft token. Which draft
    tokens are kept may depend on a later one that is not kept, and on its noise; so the next step must use other
    numbers.
    """

    seeds: Annotated[Memory, In("int64", "B")]
    positions: Annotated[Memory, In("int64", "T")]
    token_index: Annotated[Memory, In("int64", "B")]
    draft_noise: Annotated[Memory, Out("float32", f"B * K * {NUMBERS_PER_DRAFT}")]
    num_speculative_tokens: int


@arguments
class DrawnChain(DraftModelChain):
    """Predict like `draft_model_chain`, but sample draft tokens of rows with a temperature.

    Rows with certain draft tokens (point_mass) are not sampled.

    Such a draft token is sampled from the model's distribution, and the logits are stored in the row's slot. The script
    adds nothing to it: where the script says 1, another hidden state gives the logits, so that the target's
    distribution differs. `own` is the argmax of the logits that a draft token is sampled from. A row without a valid
    token samples nothing and leaves its slot unchanged.
    """

    temperature_bits: Annotated[Memory, In("int64", "B")]
    point_mass: Annotated[Memory, In("int64", "B")]
    draft_noise: Annotated[Memory, In("float32", f"B * K * {NUMBERS_PER_DRAFT}")]
    draft_logits: Annotated[Memory, InOut("float32", "num_scripts * K * V")]
    vocab_block_min: int
    tile_size: int


def draft_noise(a: DraftNoise) -> None:
    """Generate the random numbers that sample each row's draft tokens."""
    k = a.num_speculative_tokens
    for row in range(len(a.token_index)):
        position = int(a.positions[a.token_index[row]]) + 2
        for draft in range(k):
            words = philox(int(a.seeds[row]), position, DRAFT_STREAM, draft)
            for at in range(NUMBERS_PER_DRAFT):
                a.draft_noise[(row * k + draft) * NUMBERS_PER_DRAFT + at] = uniform(words[at])


def drawn_chain(a: DrawnChain) -> None:
    """Predict like `draft_model_chain`, but sample draft tokens of rows with a temperature.

    Rows with certain draft tokens (point_mass) are not sampled.
    """

    def predict(row: int, index: int, hidden: int, wrong: int) -> tuple[int, int]:
        temperature = a.temperature_bits[row].astype(np.int32).view(np.float32)
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
        return likeliest(hidden, a.vocab_size), sampled_token(logits, temperature, a.draft_noise[first : first + 3], a)

    run_chain(a, predict)


def sampled_token(logits: list[np.float32], temperature: np.float32, numbers: Any, a: DrawnChain) -> int:
    """Sample a token by three random numbers: its vocabulary block, its tile, the token."""
    maximum, scale = max(logits), scale_of(temperature)
    weights = [weight(each, NEVER, maximum, scale) for each in logits]
    block_size = block_size_of(len(logits), a.tile_size, a.vocab_block_min)
    blocks = slices_of(weights, block_size)
    block = pick(
        [ordered_sum(ordered_sum(tile) for tile in slices_of(each, a.tile_size)) for each in blocks], numbers[0]
    )
    tiles = slices_of(blocks[block], a.tile_size)
    tile = pick([ordered_sum(each) for each in tiles], numbers[1])
    return block * block_size + tile * a.tile_size + pick(tiles[tile], numbers[2])


def slices_of(masses: list[np.float32], size: int) -> list[list[np.float32]]:
    """Return the list cut into slices of `size`; the last one may be shorter."""
    return [masses[first : first + size] for first in range(0, len(masses), size)]

"""Sample draft tokens from a draft model's distribution.

The logits are kept for the rejection sampler.
"""

import numpy as np

from workers.kernels.arithmetic.numpy import TWO, as_uint64, mix_number, repeated, scores_of, tiled
from workers.kernels.draft_model.numpy import run_chain
from workers.kernels.draft_sampling.definition import NUMBERS_PER_DRAFT, DraftNoise, DrawnChain
from workers.kernels.draw_noise.definition import DRAFT_STREAM
from workers.kernels.draw_noise.numpy import philox, uniform
from workers.kernels.probabilities.blocks import block_size_of
from workers.kernels.probabilities.numpy import LOG2E, Floats, pick, weight


def draft_noise(a: DraftNoise) -> None:
    num_rows, k = len(a.seeds), a.num_speculative_tokens
    row, index = repeated(num_rows, k), as_uint64(tiled(k, num_rows))
    first = as_uint64(a.positions[a.token_index[row]])
    first += TWO
    numbers = philox(as_uint64(a.seeds)[row], first, np.full_like(first, DRAFT_STREAM), index)
    a.draft_noise.reshape(-1, NUMBERS_PER_DRAFT)[:] = uniform(numbers[:NUMBERS_PER_DRAFT]).T


def drawn_chain(a: DrawnChain) -> None:
    assert a.num_speculative_tokens > 0, "drawn_chain needs num_speculative_tokens > 0"
    k, temperatures = a.num_speculative_tokens, a.temperature_bits.astype(np.int32).view(np.float32)
    lines, numbers = a.draft_logits.reshape(-1, a.vocab_size), a.draft_noise.reshape(-1, NUMBERS_PER_DRAFT)
    block_size = block_size_of(a.vocab_size, a.tile_size, a.vocab_block_min)

    def choose(row: int, index: int, hidden: int, wrong: int) -> tuple[int, int]:
        temperature = temperatures[row]
        if not (temperature > 0 and a.point_mass[row] == 0 and a.valid[row] > 0):
            own = int(scores_of(hidden, a.vocab_size).argmax())
            return own, (own + wrong) % a.vocab_size
        found = scores_of(mix_number(hidden + 1) if wrong > 0 else hidden, a.vocab_size)
        own = int(found.argmax())
        line = int(a.state_slot[row]) * k + index
        lines[line] = logits = found.astype(np.float32)
        return own, sampled_token(
            logits, logits[own], LOG2E / temperature, numbers[row * k + index], block_size, a.tile_size
        )

    run_chain(a, choose)


def sampled_token(
    logits: Floats, maximum: np.float32, scale: np.float32, numbers: Floats, block_size: int, tile_size: int
) -> int:
    """Sample a token by three random numbers: its vocabulary block, its tile, the token.

    Shapes: numbers [3], logits [V].
    """
    weights = weight(logits, maximum, scale)
    if len(logits) <= tile_size == block_size:
        return pick(weights, numbers[2])
    padded = np.zeros(-(-len(logits) // block_size) * block_size, dtype=np.float32)
    padded[: len(logits)] = weights
    tiles = padded.reshape(-1, block_size // tile_size, tile_size)
    sums = np.add.reduce(tiles, axis=2)
    block = pick(np.add.reduce(sums, axis=1), numbers[0])
    tile = pick(sums[block], numbers[1])
    return block * block_size + tile * tile_size + pick(tiles[block, tile], numbers[2])

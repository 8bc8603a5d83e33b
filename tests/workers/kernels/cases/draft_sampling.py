"""Cases of sampled draft tokens: all kinds of temperature, vocabularies past a tile's size."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.workers.kernels.cases.batch import Batch, floats
from tests.workers.kernels.cases.drafters import drafting, last_kept, made
from workers.kernels.draft_sampling.definition import NUMBERS_PER_DRAFT, DraftNoise, DrawnChain


def cases() -> Iterator[DraftNoise | DrawnChain]:
    """Yield arguments of `draft_noise` and `drawn_chain`, for K > 0."""
    for index, (batch, num_proposed) in enumerate(drafting()):
        yield made(DraftNoise, batch, num_proposed, **_noise(batch))
        if batch.k and batch.num_real < 8:
            width, vocab_size = ((2, 33), (0, 2), (3, 4097), (1, 129))[index % 4]
            sizes = (
                {"tile_size": 128, "vocab_block_min": 4096} if index % 3 else {"tile_size": 8, "vocab_block_min": 16}
            )
            if vocab_size < 1000 or index % 3:
                yield made(DrawnChain, batch, num_proposed, **_drawing(batch, width, vocab_size), **sizes)


def _noise(batch: Batch) -> dict[str, Any]:
    """Return extreme seeds and positions, and output buffers for the random numbers."""
    return {
        "seeds": batch.rng.choice([0, (1 << 63) - 1, -1, 1 << 32, 5], batch.num_rows),
        "positions": batch.positions + (1 << 32) * batch.rng.integers(0, 2, batch.num_tokens),
        "draft_noise": floats(batch.num_rows * batch.k * NUMBERS_PER_DRAFT),
    }


def _drawing(batch: Batch, width: int, vocab_size: int) -> dict[str, Any]:
    """Return the sampling inputs of a draft chain; some rows are greedy."""
    rng, rows, k = batch.rng, batch.num_rows, batch.k
    length = int((batch.num_computed + batch.num_scheduled).max()) + 1
    temperature = rng.choice([0, 1 << 19, 1 << 20, 1 << 23], rows).astype(np.float32)
    point_mass, valid = rng.integers(0, 2, rows), np.where(batch.is_real, rng.integers(0, 2 + batch.num_drafts), 0)
    temperature[:2], point_mass[:2], valid[0], valid[1] = 1 << 22, 0, 1, 0
    words = rng.integers(0, 1 << 24, rows * k * NUMBERS_PER_DRAFT)
    words[:2] = (1 << 24) - 1
    return {
        "valid": valid,
        "token_index": last_kept(batch, valid),
        "script": rng.integers(0, 2, batch.num_state_slots * length),
        "temperature_bits": temperature.view(np.int32).astype(np.int64),
        "point_mass": point_mass,
        "draft_noise": words.astype(np.float32) * np.float32(2**-24),
        "draft_logits": floats(batch.num_state_slots * k * vocab_size),
        "drafter_conv": batch.words(batch.num_state_slots * (width + k)),
        "vocab_size": vocab_size,
        "conv_width": width,
    }

"""The Triton chain samples from any vocabulary size like NumPy's, and caches draft logits."""

from typing import Any

import numpy as np
import pytest

from tests.workers.kernels.triton.cases import Case, case
from tests.workers.kernels.triton.drafters import arguments_of
from tests.workers.kernels.triton.launches import assert_equal
from workers.kernels.draft_sampling import numpy as drawn_drafts
from workers.kernels.draft_sampling import triton as twin
from workers.kernels.draft_sampling.definition import NUMBERS_PER_DRAFT


def drawing(batch: Case, vocab_size: int, **more: Any) -> dict[str, Any]:
    """Return arguments of the chain: all kinds of temperature, some rows deterministic."""
    rng, rows = batch.rng, batch.num_rows
    temperature = rng.choice([0, 1 << 19, 1 << 20, 1 << 23], rows).astype(np.float32)
    return arguments_of(
        drawn_drafts.drawn_chain,
        batch,
        script=rng.integers(0, 2, batch.num_state_slots * batch.max_model_len),
        temperature_bits=temperature.view(np.int32).astype(np.int64),
        point_mass=rng.integers(0, 2, rows),
        draft_noise=rng.random(rows * batch.k * NUMBERS_PER_DRAFT, dtype=np.float32),
        draft_logits=np.full(batch.num_state_slots * batch.k * vocab_size, np.nan, dtype=np.float32),
        vocab_size=vocab_size,
        **more,
    )


@pytest.mark.parametrize("vocab_size", [2, 127, 128, 300, 4096, 9001])
def test_drawn_chain_works_for_every_vocabulary_size(vocab_size: int) -> None:
    given = drawing(case(9, 2, seed=1), vocab_size)
    found = assert_equal(twin.drawn_chain, drawn_drafts.drawn_chain, **given)
    kept = ~np.isnan(found["draft_logits"]).reshape(-1, 2, vocab_size)
    assert (kept.all(axis=2) == kept.any(axis=2)).all()
    assert kept.any()
    assert not kept.all()

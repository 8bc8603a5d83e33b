"""The Triton kernels that draw drafts write what their definitions do, and keep the logits where they belong."""

from typing import Any

import numpy as np
import pytest

from tests.workers.kernels.triton.cases import Case, case
from tests.workers.kernels.triton.drafters import SHAPES, VOCAB_SIZE, WIDTH, arguments_of, last_kept
from tests.workers.kernels.triton.launches import assert_equal
from workers.kernels.draft_sampling import triton as twin
from workers.kernels.draft_sampling import vectorised as drawn_drafts
from workers.kernels.draft_sampling.arguments import NUMBERS_PER_DRAFT

each_shape = pytest.mark.parametrize(("num_rows", "k", "block_size", "padding"), SHAPES)


def drawing(batch: Case, vocab_size: int, **more: Any) -> dict[str, Any]:
    """Return arguments of the chain: rows at all kinds of temperatures, some certain of their drafts."""
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


@pytest.mark.parametrize("width", [0, WIDTH])
@each_shape
def test_drafts_are_drawn_as_defined(width: int, num_rows: int, k: int, block_size: int, padding: int) -> None:
    for num_proposed in sorted({1, k} if num_rows < 9 else {k}):
        given = drawing(
            case(num_rows, k, block_size, padding, num_proposed),
            VOCAB_SIZE,
            num_proposed=num_proposed,
            conv_width=width,
        )
        assert_equal(twin.drawn_chain, drawn_drafts.drawn_chain, **given)


@pytest.mark.parametrize("vocab_size", [2, 127, 128, 300, 4096, 9001])
def test_a_draft_is_drawn_from_a_vocabulary_of_any_size(vocab_size: int) -> None:
    given = drawing(case(9, 2, seed=1), vocab_size)
    found = assert_equal(twin.drawn_chain, drawn_drafts.drawn_chain, **given)
    kept = ~np.isnan(found["draft_logits"]).reshape(-1, 2, vocab_size)
    assert (kept.all(axis=2) == kept.any(axis=2)).all()
    assert kept.any()
    assert not kept.all()


@each_shape
def test_the_noise_of_drafts_is_as_defined(num_rows: int, k: int, block_size: int, padding: int) -> None:
    batch = case(num_rows, k, block_size, padding)
    assert_equal(
        twin.draft_noise,
        drawn_drafts.draft_noise,
        seeds=batch.rng.integers(0, 1 << 62, batch.num_rows),
        positions=batch.positions + (1 << 32) * batch.rng.integers(0, 2, batch.num_tokens),
        token_index=last_kept(batch),
        draft_noise=np.full(batch.num_rows * k * NUMBERS_PER_DRAFT, np.nan, dtype=np.float32),
        num_speculative_tokens=k,
    )

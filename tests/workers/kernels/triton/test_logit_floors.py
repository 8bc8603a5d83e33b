"""The Triton op finds the defined floors, to the last tie, with any buffer size."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.workers.kernels.cases.sampling import BINARY
from tests.workers.kernels.triton.launches import define, launch
from workers.kernels.logit_floors.definition import LogitFloors
from workers.kernels.logit_floors.definition import logit_floors as definition
from workers.kernels.logit_floors.triton import Cut, find_floors

Array = NDArray[Any]
ROWS, V = 8, 300
HOSTILE = np.array([-np.inf, np.inf, np.nan, -0.0, 0.0, 1e-45, -1e-45, 3e38, -3e38], dtype=np.float32)


# Whole rows at once; five blocks with all or some logits set aside; two blocks with hardly any set aside.
CUTS = (
    Cut(short=512),
    Cut(short=1, block=64, sample=64, group=8, candidates=512),
    Cut(short=1, block=64, sample=64, group=8, candidates=64),
    Cut(short=1, block=256, sample=8, group=8, candidates=8),
)
# Flat rows: all, some or hardly any of the possible floors are set aside, after one or several samples.
FLAT_CUTS = (
    Cut(short=1, block=64, sample=64, group=8, samples=4, candidates=512),
    Cut(short=1, block=64, sample=64, group=8, samples=1, candidates=128),
    Cut(short=1, block=64, sample=64, group=8, samples=2, candidates=64),
    Cut(short=1, block=256, sample=64, group=8, samples=2, candidates=8),
)
# At this temperature every logit has the weight 1.
HOT = np.float32(2**30)


def floors(logits: Array, top_k: Array, top_p: Array, cut: Cut, temperature: np.float32 = BINARY) -> Array:
    """Return the floors of the Triton op and of the definition, for rows without draft tokens."""
    num_rows, vocab_size = logits.shape

    def twin(a: LogitFloors) -> None:
        find_floors(a, cut)

    given: dict[str, Any] = {
        "logits": logits.astype(np.float32).ravel(),
        "temperature": np.full(num_rows, temperature),
        "top_k": top_k,
        "top_p": top_p.astype(np.float32),
        "num_drafts": np.zeros(num_rows, dtype=np.int64),
        "floors": np.full(num_rows, 7, dtype=np.float32),
        "workspace": np.full(num_rows * (32 + cut.candidates), np.nan, np.float32),
        "num_speculative_tokens": 0,
        "vocab_size": vocab_size,
        "logits_stride": vocab_size,
    }
    found, expected = (run(op, **given)["floors"] for run, op in ((launch, twin), (define, definition)))
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))
    return found


@pytest.mark.parametrize("seed", range(len(CUTS)))
def test_floor_is_correct_for_every_limit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Few distinct values make many ties; in most rows a few logits have most of the weight.
    logits = rng.integers(-3, 3, (ROWS, V)) - 5 * (rng.random((ROWS, V)) < 0.9)
    logits = np.where(rng.random((ROWS, V)) < 0.2, -np.inf, logits)
    # The largest are all in one tile, or fill several.
    logits[0], logits[1], logits[2, 128:256] = np.arange(V) // 16, -(np.arange(V) // 16), 9
    top_k, top_p = rng.integers(0, V + 2, ROWS), rng.choice([0, 2**-20, 0.5, 0.75, 1 - 2**-24, 1], ROWS)
    top_k[rng.random(ROWS) < 0.5] = rng.integers(0, 9)
    floors(logits, top_k, top_p, CUTS[seed])


@pytest.mark.parametrize("cut", FLAT_CUTS)
def test_floor_of_flat_row_is_found(cut: Cut) -> None:
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((ROWS, V))
    # Ties, one value, and rows in which the samples see only the largest or smallest logits.
    logits[1], logits[2], logits[3] = np.round(logits[1] * 2), 3, np.sort(logits[3])
    logits[4, np.arange(V) // 8 % 4 > 0] -= 9
    logits[5, np.arange(V) // 8 % 4 > 0] += 9
    logits[6, rng.random(V) < 0.6] = -np.inf
    top_p = np.array([0.5, 0.75, 0.75, 0.25, 0.5, 0.5, 0.75, 1 - 2**-20])
    floors(logits, np.zeros(ROWS, dtype=np.int64), top_p, cut, HOT)


@pytest.mark.parametrize("cut", FLAT_CUTS)
def test_floor_below_dominant_logits_is_found(cut: Cut) -> None:
    rng = np.random.default_rng(1)
    logits = rng.permuted(np.tile(np.repeat([0, -5, -6, -7], [10, 30, 60, 200]), (ROWS, 1)), axis=1)
    found = floors(logits, np.zeros(ROWS, dtype=np.int64), np.linspace(0.7, 0.99, ROWS), cut)
    assert set(found) == {0, -5, -6, -7}


@pytest.mark.parametrize("cut", CUTS[:2])
def test_floors_with_signed_zeros_nan_and_denormals(cut: Cut) -> None:
    rng = np.random.default_rng(1)
    logits = np.where(rng.random((ROWS, V)) < 0.99, rng.integers(-2, 2, (ROWS, V)), rng.choice(HOSTILE, (ROWS, V)))
    logits[::2][~(logits[::2] < np.inf)] = -0.0
    logits[0] = -np.inf
    # Alone in its tile.
    logits[2], logits[2, 299] = -np.inf, -3e38
    found = floors(logits, rng.integers(1, V, ROWS), rng.choice([0, 0.5, 1], ROWS), cut)
    assert np.isneginf(found[0])
    assert found[2] == np.float32(-3e38) or np.isneginf(found[2])
    assert np.isneginf(found[1::2]).any()

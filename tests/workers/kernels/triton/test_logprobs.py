"""The Triton kernels of logprobs write what their definitions do: ids to the bit, logprobs as close as sums can be."""

from typing import Any

import numpy as np
import pytest

from tests.workers.kernels.triton.cases import INT_POISON, Array, case
from tests.workers.kernels.triton.launches import assert_equal, define, launch
from workers.kernels.keep_logits.triton import keep_logits
from workers.kernels.keep_logits.vectorised import keep_logits as defined_keep_logits
from workers.kernels.logprobs import vectorised as definition
from workers.kernels.logprobs.arguments import LOGPROBS_MAX
from workers.kernels.logprobs.triton import flatten_logprobs, token_logprobs
from workers.kernels.sentinels import NO_TOKEN

SHAPES = [(1, 0, 2), (7, 1, 5), (7, 3, 33), (3, 2, 1500)]
# What `workers.oracle.logprobs.TOLERANCE` allows for float32 sums of exponentials, ten times over.
TOLERANCE = 1e-5


def logits_of(rng: np.random.Generator, num_columns: int, vocab_size: int) -> Array:
    """Return logits as a model's, many of them equal, some of them masked; the first of a column is not."""
    logits = rng.integers(0, 1 << 24, (num_columns, vocab_size))
    logits = np.where(rng.integers(2, size=logits.shape) > 0, logits, logits.max() // 2).astype(np.float32)
    masked = rng.random(logits.shape) < rng.choice([0.0, 0.3, 1.0], (num_columns, 1))
    masked[:, 0] = False
    logits[masked] = -np.inf
    return logits.ravel()


@pytest.mark.parametrize("num_logits", [1, 129, 1025])
def test_logits_are_kept_as_they_are(num_logits: int) -> None:
    logits = np.random.default_rng(num_logits).normal(size=num_logits).astype(np.float32)
    logits[0] = np.nan
    assert_equal(keep_logits, defined_keep_logits, logits=logits, kept=np.zeros(num_logits, dtype=np.float32))


@pytest.mark.parametrize(("num_rows", "k", "vocab_size"), SHAPES)
def test_the_sampled_token_and_the_likeliest_ones_have_their_logprobs_and_other_columns_nothing(
    num_rows: int, k: int, vocab_size: int
) -> None:
    batch = case(num_rows, k)
    width = 1 + k
    counts = batch.rng.integers(0, 1 + width, batch.num_rows)
    counts[0] = width
    tokens = batch.rng.integers(0, vocab_size, (batch.num_rows, width))
    size = batch.num_rows * width * LOGPROBS_MAX
    arguments: dict[str, Any] = {
        "rows": batch.rng.permutation(batch.num_rows)[: num_rows + 1],
        "logits": logits_of(batch.rng, batch.num_rows * width, vocab_size),
        "sampled": np.where(np.arange(width) < counts[:, None], tokens, NO_TOKEN).ravel(),
        "ids": np.full(size, INT_POISON),
        "logprobs": np.full(size, np.nan, dtype=np.float32),
        "num_speculative_tokens": k,
        "vocab_size": vocab_size,
    }
    found, expected = launch(token_logprobs, **arguments), define(definition.token_logprobs, **arguments)
    np.testing.assert_array_equal(found["ids"], expected["ids"])
    np.testing.assert_allclose(found["logprobs"], expected["logprobs"], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(("num_rows", "k"), [(1, 0), (7, 3), (133, 15)])
def test_logprobs_lie_one_behind_the_other_and_nothing_behind_the_last(num_rows: int, k: int) -> None:
    batch = case(num_rows, k)
    width = 1 + k
    size = batch.num_rows * width * LOGPROBS_MAX
    assert_equal(
        flatten_logprobs,
        definition.flatten_logprobs,
        rows=batch.rng.permutation(batch.num_rows)[:num_rows],
        num_sampled=batch.rng.integers(0, 1 + width, batch.num_rows),
        ids=batch.rng.integers(0, 1 << 40, size),
        logprobs=batch.rng.normal(size=size).astype(np.float32),
        flat_ids=batch.integers(size),
        flat_logprobs=np.full(size, np.nan, dtype=np.float32),
        width=width,
    )

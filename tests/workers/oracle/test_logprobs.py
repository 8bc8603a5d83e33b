"""Logprobs: the ops' float32 is close to the oracle's float64, for sampled tokens only."""

from math import inf, nan

import numpy as np
import pytest

from workers.kernels.keep_logits.definition import KeepLogits, keep_logits
from workers.kernels.logprobs.definition import LOGPROBS_MAX, FlattenLogprobs, TokenLogprobs, flatten_logprobs
from workers.kernels.logprobs.numpy import token_logprobs
from workers.kernels.sentinels import NO_TOKEN
from workers.oracle.expected_captures import TOLERANCE, are_close
from workers.oracle.logits_processing import logprobs_of


@pytest.mark.parametrize("vocab_size", [2, 5, 33, 65536])
def test_token_logprobs_covers_sampled_tokens_of_named_rows_only(vocab_size: int) -> None:
    rng = np.random.default_rng(vocab_size)
    k, num_rows = 2, 5
    width = 1 + k
    # Few values, so that there are ties, and some tokens that are forbidden.
    logits = (rng.integers(0, 50, (num_rows, width, vocab_size)) * ((1 << 24) // 50)).astype(np.float32)
    logits[..., 1:][rng.integers(0, 4, (num_rows, width, vocab_size - 1)) == 0] = -inf
    num_sampled = np.array([0, 3, 1, 2, 3])
    sampled = np.full((num_rows, width), NO_TOKEN)
    for row, count in enumerate(num_sampled):
        sampled[row, :count] = logits[row, :count].argmax(axis=1)
    rows, size = np.array([1, 0, 3]), num_rows * width * LOGPROBS_MAX
    ids, values = np.full(size, -7), np.full(size, nan, np.float32)
    token_logprobs(TokenLogprobs(rows, logits.reshape(-1), sampled.reshape(-1), ids, values, k, vocab_size))
    flat_ids, flat = np.full_like(ids, -7), np.full_like(values, nan)
    flatten_logprobs(FlattenLogprobs(rows, num_sampled, ids, values, flat_ids, flat, width))
    places = [(row, column) for row in rows for column in range(num_sampled[row])]
    for (row, column), start in zip(places, range(0, size, LOGPROBS_MAX), strict=False):
        wanted = logprobs_of(logits[row, column].tolist(), int(sampled[row, column]), LOGPROBS_MAX)
        pairs = range(start, start + LOGPROBS_MAX)
        seen = [value for at in pairs if flat_ids[at] != NO_TOKEN for value in (int(flat_ids[at]), float(flat[at]))]
        assert are_close(tuple(seen), wanted), (seen, wanted)
    assert (flat_ids[len(places) * LOGPROBS_MAX :] == -7).all()
    assert np.isnan(flat[len(places) * LOGPROBS_MAX :]).all()
    untouched = [row for row in range(num_rows) if row not in (1, 3)]
    assert (ids.reshape(num_rows, -1)[untouched] == -7).all()


def test_logprobs_of_equal_logits_are_in_id_order() -> None:
    found = logprobs_of([7.0, 7.0, -inf, 7.0], 3, 4)
    assert found[::2] == (3, 0, 1, 3)
    assert are_close(found[1::2], (-1.0986123,) * 4)


@pytest.mark.parametrize(
    ("seen", "wanted", "close"),
    [
        ((4, -1.0), (4, -1.0 + TOLERANCE / 2), True),
        ((4, -1.0), (4, -1.0 + 2 * TOLERANCE), False),
        ((5, -1.0), (4, -1.0), False),
        ((4, -inf), (4, -inf), True),
        ((4, -inf), (4, -1.0), False),
        ((4, nan), (4, -1.0), False),
        ((), (4, -1.0), False),
    ],
)
def test_are_close_compares_ids_exactly_and_logprobs_closely(
    seen: tuple[float, ...], wanted: tuple[float, ...], close: bool
) -> None:
    assert are_close(seen, wanted) is close


def test_keep_logits_copies_logits() -> None:
    kept = np.zeros(3, np.float32)
    keep_logits(KeepLogits(np.array([1, -inf, 3], np.float32), kept))
    assert kept.tolist() == [1, -inf, 3]

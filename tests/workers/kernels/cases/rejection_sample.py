"""Cases of greedy verification: ties, undefined columns, draft tokens that must be rejected."""

from collections.abc import Iterator

import numpy as np

from tests.workers.kernels.cases.batch import INT_POISON, Array, Batch, Row, batch, batches, integers
from workers.kernels.rejection_sample.definition import RejectionSample
from workers.kernels.sentinels import NO_DRAFT


def cases() -> Iterator[RejectionSample]:
    """Yield every batch, rows with extreme values, and one with a vocabulary of block size + 1."""
    for each in batches():
        yield _of(each, _logits(each))
    hostile = batch([Row(4, 3, 1)] * 8, k=3, block_size=4, vocab_size=5, padding=2, seed=6)
    logits = _logits(hostile)
    logits[0, 0], logits[1, 1, 4], logits[2, 0, 4], logits[3, 3, 0] = -np.inf, np.nan, np.inf, np.nan
    logits[4, 0, :-1], logits[4, 0, -1] = -np.inf, np.finfo(np.float32).min
    given = _of(hostile, logits)
    drafts = given.scheduled_drafts.reshape(-1, 3)
    drafts[0, 0], drafts[1, 1], drafts[5, 1], drafts[6, 0] = NO_DRAFT, 4, NO_DRAFT, 5
    given.invalid[7] = 1
    yield given
    large = batch([Row(2, 1, 1), Row(1, 0, 2)], k=1, block_size=4, vocab_size=1025, seed=7)
    logits = np.zeros((2, 2, 1025), dtype=np.float32)
    logits[0, 0, -1], logits[0, 1, 1023:], logits[1, 0, [0, 1024]] = 1, 2, 3
    yield _of(large, logits)


def _logits(each: Batch) -> Array:
    """Return logits with few distinct values, so that most rows have ties; padding is NaN."""
    shape = (each.num_rows, 1 + each.k, each.vocab_size)
    return np.where(each.is_real[:, None, None], each.rng.integers(0, 3, shape), np.nan).astype(np.float32)


def _of(each: Batch, logits: Array) -> RejectionSample:
    """Return the arguments of the op, with mostly correct draft tokens."""
    rng, rows, k = each.rng, each.num_rows, each.k
    best = np.nan_to_num(logits[:, :k], nan=-np.inf).argmax(axis=2)
    is_right = (rng.random((rows, k)) < 0.8) | (np.arange(k) >= each.num_drafts[:, None])
    drafts = np.where(is_right, best, rng.integers(NO_DRAFT, each.vocab_size, (rows, k)))
    drafts[~each.is_real] = INT_POISON
    return RejectionSample(
        logits=logits.ravel(),
        scheduled_drafts=drafts.ravel(),
        num_scheduled=each.num_scheduled,
        num_drafts=each.num_drafts,
        invalid=np.zeros(rows, dtype=np.int64),
        sampled=integers(rows * (1 + k)),
        num_speculative_tokens=k,
        vocab_size=each.vocab_size,
    )

"""Cases of logprobs: vocabularies below and above their number, equal and masked logits."""

from collections.abc import Iterator

import numpy as np

from tests.workers.kernels.cases.batch import Array, Batch, Row, batch, batches, floats, integers
from workers.kernels.logprobs.definition import LOGPROBS_MAX, FlattenLogprobs, TokenLogprobs
from workers.kernels.sentinels import NO_TOKEN

# Float32 sums of exponentials of logits below 16, in any order: a tenth of what the oracle allows.
TOLERANCE = {"logprobs": 1e-5}


def logits_for_logprobs(batch: Batch) -> Array:
    """Return logits with many ties and some masked tokens."""
    shape = (batch.num_rows * (1 + batch.k), batch.vocab_size)
    logits = batch.rng.integers(0, 1 << 24, shape).astype(np.float32)
    logits[batch.rng.integers(2, size=shape) == 0] = 1 << 23
    is_masked = batch.rng.random(shape) < batch.rng.choice([0.0, 0.3, 1.0], (shape[0], 1))
    is_masked[:, 0] = False
    logits[is_masked] = -np.inf
    return logits.ravel()


def flattening(batch: Batch, rows: Array, counts: Array) -> FlattenLogprobs:
    """Return the arguments of `flatten_logprobs` for a batch."""
    size = batch.num_rows * (1 + batch.k) * LOGPROBS_MAX
    return FlattenLogprobs(
        rows=rows,
        num_sampled=counts,
        ids=batch.rng.integers(0, 1 << 40, size),
        logprobs=batch.rng.normal(size=size).astype(np.float32),
        flat_ids=integers(size),
        flat_logprobs=floats(size),
        width=1 + batch.k,
    )


def cases() -> Iterator[FlattenLogprobs | TokenLogprobs]:
    """Yield every batch; rows want logprobs of none, some or all of their logits rows.

    Then a vocabulary, and rows, that are more than a program takes at once.
    """
    wide = batch([Row(2, 1, 0)], k=1, block_size=3, vocab_size=1500, seed=7)
    for index, each in enumerate((*batches(), wide)):
        rng, width = each.rng, 1 + each.k
        counts = (np.arange(each.num_rows) + index) % (1 + width)
        counts[: each.num_real][each.num_drafts[: each.num_real] == each.k] = width
        tokens = rng.integers(0, each.vocab_size, (each.num_rows, width))
        size, rows = each.num_rows * width * LOGPROBS_MAX, each.some_rows()
        yield TokenLogprobs(
            rows=rows,
            logits=logits_for_logprobs(each),
            sampled=np.where(np.arange(width) < counts[:, None], tokens, NO_TOKEN).ravel(),
            ids=integers(size),
            logprobs=floats(size),
            num_speculative_tokens=each.k,
            vocab_size=each.vocab_size,
        )
        yield flattening(each, rows, counts)
    most = batch([Row(1, 0, 0)] * 66, k=15, block_size=16, vocab_size=3, seed=8)
    yield flattening(most, most.rng.permutation(66), most.rng.integers(0, 17, 66))

"""Cases of logit floors: equal logits, undefined rows, every limit, and several blocks."""

from collections.abc import Iterator

import numpy as np

from tests.workers.kernels.cases.batch import floats
from tests.workers.kernels.cases.sampling import BINARY
from workers.kernels.logit_floors.definition import LogitFloors, workspace_length_of


def undefined(case: LogitFloors) -> dict[str, range]:
    """Return a mask of the workspace part that the op leaves undefined."""
    return {"workspace": range(len(case.workspace))}


def cases() -> Iterator[LogitFloors]:
    """Yield arguments of `logit_floors`; weights are powers of two, so that sums are exact."""
    for num_rows, k, vocab_size, padding in ((1, 0, 3, 0), (3, 2, 33, 2), (7, 1, 7, 1), (1, 0, 4097, 0)):
        rng, stride = np.random.default_rng(vocab_size), vocab_size + padding
        logits = rng.integers(-2, 3, (num_rows, 1 + k, stride)).astype(np.float32)
        logits[rng.random(logits.shape) < 0.2] = -np.inf
        logits[:, :, vocab_size:] = np.nan
        top_k = np.array([2, 0, 1, vocab_size, vocab_size + 5, vocab_size - 1, 2])[:num_rows]
        top_p = np.array([0.75, 2**-20, 1, 0.5, 0, 1, 0.25], dtype=np.float32)[:num_rows]
        temperature = np.full(num_rows, BINARY)
        if vocab_size == 3:
            # The first token has exactly half.
            logits[0, 0, :3], top_k[0], top_p[0] = (1, 0, 0), 0, 0.5
        if num_rows > 3:
            logits[4, 0, 1], logits[5, 0, vocab_size - 1], logits[6, -1, :vocab_size] = np.nan, np.inf, -np.inf
            temperature[3] = 0
        yield LogitFloors(
            logits=logits.ravel(),
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            num_drafts=rng.integers(0, k + 1, num_rows),
            floors=floats(num_rows * (1 + k)),
            workspace=floats(num_rows * (1 + k) * workspace_length_of(vocab_size)),
            num_speculative_tokens=k,
            vocab_size=vocab_size,
            logits_stride=stride,
        )

"""Cases of sampling inputs: extreme temperatures, every bound of top-p and of rates."""

from collections.abc import Iterator

import numpy as np

from tests.workers.kernels.cases.batch import batches, floats, integers
from workers.kernels.sampling_inputs.definition import SamplingInputs


def cases() -> Iterator[SamplingInputs]:
    """Yield every batch."""
    for batch in batches():
        rows, k = batch.num_rows, batch.k
        temperature = batch.rng.choice([0, 2**-149, 2**20, 3.0e38], rows).astype(np.float32)
        top_p = batch.rng.choice([0, 0.1, 0.9, 1], rows).astype(np.float32)
        yield SamplingInputs(
            temperature_bits=temperature.view(np.int32).astype(np.int64),
            top_p_bits=top_p.view(np.int32).astype(np.int64),
            rates_in_steps=np.array([64, 0, 1, 63])[:k],
            num_computed=batch.num_computed,
            num_scheduled=batch.num_scheduled,
            num_drafts=batch.num_drafts,
            temperature=floats(rows),
            top_p=floats(rows),
            rates=floats(k),
            positions=integers(rows),
            floors=floats(rows * (1 + k)),
            num_speculative_tokens=k,
        )

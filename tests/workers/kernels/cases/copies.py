"""Cases of copies: one and several elements, integers and NaN."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.workers.kernels.cases.batch import floats, integers
from workers.kernels.copies.definition import (
    CopyAccepted,
    CopyCounts,
    CopyDrafts,
    CopyInputs,
    CopyLine,
    CopyLogprobs,
    CopyMasks,
    CopyOutput,
    CopyScript,
)


def cases() -> Iterator[Any]:
    """Yield arguments of each copy op with int64 data; of logprob copies also with float32."""
    for count in (1, 7):
        source = np.arange(count) - 1
        source[0] = np.iinfo(np.int64).min
        yield CopyInputs(source=source, destination=integers(count))
        yield CopyScript(source=source, destination=integers(count))
        yield CopyLine(source=source, destination=integers(count))
        yield CopyOutput(sampled=source, destination=integers(count))
        yield CopyMasks(source=source, destination=integers(count))
        yield CopyDrafts(draft_tokens=source, destination=integers(count))
        yield CopyCounts(valid=source, destination=integers(count))
        yield CopyAccepted(accepted=source, destination=integers(count))
        yield CopyLogprobs(flat=source, destination=integers(count))
        numbers = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45, -3.5, 1e38], dtype=np.float32)[-count:]
        yield CopyLogprobs(flat=numbers, destination=floats(count))

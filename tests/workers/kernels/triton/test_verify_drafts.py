"""The Triton kernels that verify drafts by chance are lossless, and decide as the oracle does."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from scenarios.spec import SamplingMethod
from tests.workers.kernels.enumeration import committed, total_variation, world
from tests.workers.kernels.triton.launches import launch
from tests.workers.kernels.verification import Drafts, verify
from tests.workers.oracle.test_random_sampling import METHODS, rows_of, tokens_of
from workers.kernels.residual_mass.triton import residual_mass
from workers.kernels.sampler_stats.triton import sampler_stats
from workers.kernels.verify_drafts.arguments import BLOCK, STANDARD, STRICT
from workers.kernels.verify_drafts.triton import verify_drafts

Array = NDArray[Any]


def run(op: Callable[..., None], _outputs: tuple[str, ...], **arguments: Any) -> dict[str, Array]:
    return launch(op, **arguments)


def verify_by_twins(batch: Drafts) -> dict[str, Array]:
    return verify(batch, run, (sampler_stats, residual_mass, verify_drafts))


@pytest.mark.parametrize("method", METHODS)
def test_the_twins_decide_as_the_oracle_does_wherever_it_is_not_ambiguous(method: SamplingMethod) -> None:
    rows = rows_of(24, 32, 1)
    for expected, tokens in zip(
        rows.expected(method), tokens_of(verify_by_twins(rows.batch(method))["sampled"]), strict=True
    ):
        assert expected.is_ambiguous or expected.tokens == tokens


@pytest.mark.parametrize("method", [STRICT, STANDARD, BLOCK])
def test_the_twins_are_lossless(method: int) -> None:
    def sampled(batch: Drafts) -> NDArray[np.int64]:
        return verify_by_twins(batch)["sampled"].reshape(batch.logits.shape[:2])

    for point_mass in (False, True):
        sizes = {"vocab_size": 2, "block_size": 2, "tile_size": 1}
        at = world(1, method=method, k=1 + point_mass, num_tries=1, point_mass=point_mass, **sizes)
        law, differing = committed(at, sampled)
        assert differing == 0
        assert total_variation(at, law) == 0

"""The Triton kernels for rejection sampling are lossless, and decide like the oracle."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from scenarios.spec import SamplingMethod
from tests.workers.kernels.enumeration import committed, total_variation, world
from tests.workers.kernels.triton.launches import launch
from tests.workers.kernels.verification import BINARY, Drafts, drafts_of, verify
from tests.workers.oracle.test_random_sampling import METHODS, rows_of, tokens_of
from workers.kernels.residual_mass.triton import residual_mass
from workers.kernels.sampler_stats.triton import sampler_stats
from workers.kernels.verify_drafts.definition import BLOCK, STANDARD, STRICT
from workers.kernels.verify_drafts.triton import verify_drafts

Array = NDArray[Any]


def run(op: Callable[..., None], _outputs: tuple[str, ...], **arguments: Any) -> dict[str, Array]:
    return launch(op, **arguments)


def verify_by_twins(batch: Drafts) -> dict[str, Array]:
    return verify(batch, run, (sampler_stats, residual_mass, verify_drafts))


@pytest.mark.parametrize("method", METHODS)
def test_twins_decide_like_the_oracle_if_unambiguous(method: SamplingMethod) -> None:
    rows = rows_of(24, 32, 1)
    decided = tokens_of(verify_by_twins(rows.batch(method))["sampled"])
    assert decided
    for expected, tokens in zip(rows.expected(method), decided, strict=True):
        assert expected.is_ambiguous or expected.tokens == tokens


@pytest.mark.parametrize("method", [STRICT, STANDARD, BLOCK])
def test_twins_are_lossless(method: int) -> None:
    def sampled(batch: Drafts) -> NDArray[np.int64]:
        return verify_by_twins(batch)["sampled"].reshape(batch.logits.shape[:2])

    for point_mass in (False, True):
        sizes = {"vocab_size": 2, "block_size": 2, "tile_size": 1}
        at = world(1, method=method, k=1 + point_mass, num_tries=1, point_mass=point_mass, **sizes)
        law, differing = committed(at, sampled)
        assert differing == 0
        assert total_variation(at, law) == 0


def test_block_bounds_decide_like_the_residual() -> None:
    rng = np.random.default_rng(1)
    # Nine blocks, the last of one token.
    rows, k, vocab_size = 4, 3, 33
    logits, draft_logits = (rng.integers(0, 6, (rows, n, vocab_size)).astype(np.float32)[-1:] for n in (1 + k, k))
    batch = drafts_of(
        BLOCK, 4, 4,
        logits=logits, draft_logits=draft_logits, drafts=logits[:, :k].argmax(2),
        num_drafts=np.array([k]), temperature=np.array([BINARY]), point_mass=np.zeros(1, dtype=np.int64),
        accept_noise=np.array([[0.5, 0.3, 1 - 2**-24]], dtype=np.float32),
        select_noise=rng.random((1, 1 + k, 2, 4), dtype=np.float32),
    )  # fmt: skip
    found, defined = verify_by_twins(batch), verify(batch)
    np.testing.assert_array_equal(found["sampled"], defined["sampled"])
    left, expected = (np.nan_to_num(each["residual"]).sum() for each in (found, defined))
    assert 0 < left < expected - 0.1

"""The Triton kernels that verify drafts by chance write what their definitions do, and so are lossless too."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from scenarios.spec import SamplingMethod
from tests.workers.kernels.enumeration import committed, total_variation, world
from tests.workers.kernels.triton.launches import assert_equal, launch
from tests.workers.kernels.verification import Drafts, random_drafts, verify
from tests.workers.oracle.test_random_sampling import METHODS, rows_of, tokens_of
from workers.kernels.draw_noise import vectorised as noise_definition
from workers.kernels.draw_noise.triton import draw_noise
from workers.kernels.logit_floors import vectorised as floors_definition
from workers.kernels.logit_floors.triton import logit_floors
from workers.kernels.residual_mass.triton import residual_mass
from workers.kernels.sampler_stats.triton import sampler_stats
from workers.kernels.sentinels import NO_TOKEN
from workers.kernels.verify_drafts.arguments import BLOCK, STANDARD, STRICT, SYNTHETIC
from workers.kernels.verify_drafts.triton import verify_drafts

Array = NDArray[Any]


def run(op: Callable[..., None], _outputs: tuple[str, ...], **arguments: Any) -> dict[str, Array]:
    return launch(op, **arguments)


def verify_by_twins(batch: Drafts) -> dict[str, Array]:
    return verify(batch, run, (sampler_stats, residual_mass, verify_drafts))


@pytest.mark.parametrize("method", [STRICT, STANDARD, SYNTHETIC, BLOCK])
@pytest.mark.parametrize(
    ("num_rows", "k", "vocab_size", "block_size", "tile_size"),
    [(7, 3, 5, 2, 1), (7, 0, 7, 4, 2), (5, 2, 129, 64, 8), (9, 1, 3, 4, 4), (3, 5, 600, 256, 64)],
)
def test_every_kind_of_row_is_decided_as_its_definition_does(
    method: int, num_rows: int, k: int, vocab_size: int, block_size: int, tile_size: int
) -> None:
    batch = random_drafts(num_rows, k, vocab_size, method, block_size, tile_size)
    found, expected = verify_by_twins(batch), verify(batch)
    # The quotients of block verification are rounded; a GPU fuses the product with the difference.
    residual = found.pop("residual"), expected.pop("residual")
    np.testing.assert_allclose(*residual, rtol=1e-5, atol=1e-6)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, name)


@pytest.mark.parametrize("method", [STANDARD, BLOCK])
def test_real_weights_have_sums_as_close_as_float32_lets_them_and_decide_the_same(method: int) -> None:
    batch = random_drafts(5, 3, 300, method, 128, 16, seed=1)
    rng = np.random.default_rng(method)

    def real(logits: Array) -> Array:
        return np.asarray(logits + rng.normal(scale=2, size=logits.shape), dtype=np.float32)

    temperature = np.where(batch.temperature > 0, np.float32(0.7), np.float32(0))
    batch = replace(batch, logits=real(batch.logits), draft_logits=real(batch.draft_logits), temperature=temperature)
    found, expected = verify_by_twins(batch), verify(batch)
    for name in ("block_max", "block_sum", "tile_sum", "residual"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-6, err_msg=name)
    for name in ("block_best", "sampled", "status"):
        np.testing.assert_array_equal(found[name], expected[name], name)


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


@pytest.mark.parametrize(("num_rows", "k", "num_tries"), [(1, 0, 0), (7, 3, 2), (33, 1, 1)])
def test_noise_is_the_same_to_the_bit(num_rows: int, k: int, num_tries: int) -> None:
    rng = np.random.default_rng(num_rows)
    assert_equal(
        draw_noise,
        noise_definition.draw_noise,
        seeds=rng.integers(0, 1 << 64, num_rows, dtype=np.uint64),
        positions=np.where(rng.random(num_rows) < 0.5, rng.integers(0, 99, num_rows), (1 << 32) - 2),
        accept_noise=np.full(num_rows * k, np.nan, dtype=np.float32),
        select_noise=np.full(num_rows * (1 + k) * (1 + num_tries) * 4, np.nan, dtype=np.float32),
        num_speculative_tokens=k,
        num_tries=num_tries,
    )


@pytest.mark.parametrize(("vocab_size", "k"), [(1, 1), (7, 2), (129, 0), (5000, 0)])
def test_top_k_and_top_p_keep_the_same_logits(vocab_size: int, k: int) -> None:
    rng, num_rows, stride = np.random.default_rng(vocab_size), 7, vocab_size + 3
    # Weights are powers of two, many of them equal; -0.0 and 0.0 are.
    logits = rng.integers(-2, 3, (num_rows, 1 + k, stride)).astype(np.float32) * rng.choice([-1, 1], (num_rows, 1, 1))
    logits[rng.random(logits.shape) < 0.2] = -np.inf
    logits[1, :, 0], logits[2, :, 0], logits[3] = np.nan, np.inf, -np.inf
    found = assert_equal(
        logit_floors,
        floors_definition.logit_floors,
        logits=logits.astype(np.float32).ravel(),
        temperature=np.where(np.arange(num_rows) == 5, 0, 1.4426950408889634).astype(np.float32),
        top_k=rng.integers(0, min(vocab_size, 20) + 2, num_rows),
        top_p=rng.choice([1, 0.75, 0.5, 0.1], num_rows).astype(np.float32),
        num_drafts=rng.integers(0, k + 1, num_rows),
        floors=np.full(num_rows * (1 + k), np.nan, dtype=np.float32),
        num_speculative_tokens=k,
        vocab_size=vocab_size,
        logits_stride=stride,
    )
    assert vocab_size == 1 or np.isfinite(found["floors"]).any()


def test_padding_rows_and_the_columns_past_the_last_token_hold_no_token() -> None:
    batch = random_drafts(9, 3, 5, STANDARD, 4, 2, seed=5)
    found = verify_by_twins(batch)["sampled"].reshape(9, 4)
    assert (found[(batch.num_scheduled == 0) | (batch.invalid > 0)] == NO_TOKEN).all()
    lengths = (found != NO_TOKEN).sum(axis=1)
    assert ((found != NO_TOKEN) == (np.arange(4) < lengths[:, None])).all()

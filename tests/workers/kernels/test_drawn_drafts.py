"""Sampled draft tokens: their own noise and distribution, cached in their request's slot."""

from typing import Any

import numpy as np
import pytest

from tests.workers.kernels.triton.cases import case
from tests.workers.kernels.triton.drafters import arguments_of
from workers.kernels.draft_model import numpy as draft_model
from workers.kernels.draft_model.definition import DraftModelChain
from workers.kernels.draft_sampling.definition import NUMBERS_PER_DRAFT, DraftNoise, DrawnChain
from workers.kernels.draft_sampling.numpy import draft_noise, drawn_chain, sampled_token
from workers.kernels.draw_noise.definition import DrawNoise
from workers.kernels.draw_noise.numpy import draw_noise
from workers.kernels.probabilities.blocks import BLOCK_SIZE_MIN, TILE_SIZE, block_size_of
from workers.kernels.probabilities.numpy import LOG2E

K, V = 3, 31


def run(seed: int, **changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run the chain; return its final arguments, and a greedy chain's."""
    batch = case(7, K, seed=seed)
    temperature = batch.rng.choice([0, 1 << 20], batch.num_rows).astype(np.float32)
    given = arguments_of(
        drawn_chain,
        batch,
        script=batch.rng.integers(0, 2, batch.num_state_slots * batch.max_model_len),
        temperature_bits=temperature.view(np.int32).astype(np.int64),
        point_mass=batch.rng.integers(0, 2, batch.num_rows),
        draft_noise=batch.rng.random(batch.num_rows * K * NUMBERS_PER_DRAFT, dtype=np.float32),
        draft_logits=np.full(batch.num_state_slots * K * V, np.nan, dtype=np.float32),
        vocab_size=V,
        vocab_block_min=BLOCK_SIZE_MIN,
        tile_size=TILE_SIZE,
    )
    given |= changes
    greedy: dict[str, Any] = {
        name: np.array(given[name]) if isinstance(given[name], np.ndarray) else given[name] for name in given
    }
    drawn_chain(DrawnChain(**given))
    for name in ("temperature_bits", "point_mass", "draft_noise", "draft_logits", "vocab_block_min", "tile_size"):
        del greedy[name]
    draft_model.draft_model_chain(DraftModelChain(**greedy))
    return given, greedy


def test_greedy_rows_are_unchanged_by_sampled_rows() -> None:
    for seed in range(5):
        given, greedy = run(seed)
        draws = (given["temperature_bits"] > 0) & (given["point_mass"] == 0) & (given["valid"] > 0)
        for name in ("raw", "own", "draft_tokens"):
            found, wanted = (each[name].reshape(-1, K)[~draws] for each in (given, greedy))
            np.testing.assert_array_equal(found, wanted)
        lines = given["draft_logits"].reshape(-1, K * V)
        kept = np.setdiff1d(np.arange(len(lines)), given["state_slot"][draws])
        assert np.isnan(lines[kept]).all()
        assert not np.isnan(lines[given["state_slot"][draws]]).any()


def test_script_changes_draft_distribution_only() -> None:
    for seed in range(5):
        given, greedy = run(seed)
        draws = np.flatnonzero((given["temperature_bits"] > 0) & (given["point_mass"] == 0) & (given["valid"] > 0))
        lines = given["draft_logits"].reshape(-1, K, V)[given["state_slot"][draws]]
        np.testing.assert_array_equal(lines.argmax(axis=2), given["own"].reshape(-1, K)[draws])
        first = given["positions"][given["token_index"][draws]] + 2
        length = given["max_model_len"]
        wrong = given["script"].reshape(-1, length)[given["state_slot"][draws], np.minimum(first, length - 1)] > 0
        own = greedy["own"].reshape(-1, K)[draws, 0]
        np.testing.assert_array_equal(given["own"].reshape(-1, K)[draws, 0][~wrong], own[~wrong])
        # Scores of another hidden state have another maximum, except for one in V.
        assert (given["own"].reshape(-1, K)[draws, 0][wrong] != own[wrong]).mean() > 0.5 or not wrong.any()


def test_chain_without_proposal_keeps_draft_logits_slot() -> None:
    given, _ = run(3, num_proposed=0)
    assert np.isnan(given["draft_logits"]).all()
    assert (given["draft_tokens"] == -1).all()


@pytest.mark.parametrize(("vocab_size", "temperature"), [(2, 1.0), (31, 0.5), (300, 4.0)])
def test_uniform_noise_samples_tokens_by_probability(vocab_size: int, temperature: float) -> None:
    rng = np.random.default_rng(vocab_size)
    logits = rng.normal(scale=2, size=vocab_size).astype(np.float32)
    count = 1000 if vocab_size <= 128 else 150
    grid = np.stack(np.meshgrid(np.zeros(1), *(np.arange(count) / count,) * 2, indexing="ij"), axis=-1).reshape(-1, 3)
    numbers = grid.astype(np.float32) if vocab_size > 128 else grid[:count].astype(np.float32)
    scale, block_size = LOG2E / np.float32(temperature), block_size_of(vocab_size)
    tokens = [sampled_token(logits, logits.max(), scale, each, block_size, TILE_SIZE) for each in numbers]
    shares = np.bincount(tokens, minlength=vocab_size) / len(numbers)
    weights = np.exp(logits.astype(np.float64) / temperature)
    np.testing.assert_allclose(shares, weights / weights.sum(), atol=2 / count)


def test_draft_noise_shares_no_number_with_other_noise() -> None:
    seeds, found = np.array([5, 5, 6]), np.full(3 * K * NUMBERS_PER_DRAFT, np.nan, dtype=np.float32)
    draft_noise(DraftNoise(seeds, np.array([10, 11, 10]), np.arange(3), found, K))
    accept, select = np.empty(3 * 9, dtype=np.float32), np.empty(3 * 10 * 3 * 4, dtype=np.float32)
    draw_noise(DrawNoise(seeds, np.array([8, 9, 8]), accept, select, 9, 2))
    assert len(np.unique(found)) == len(found)
    assert not set(found.tolist()) & {*accept.tolist(), *select.tolist()}

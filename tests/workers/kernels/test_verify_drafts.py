"""Verification without chance: refused draft tokens, missing distributions, limits."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.workers.kernels.verification import BINARY, Drafts, drafts_of, verify
from workers.kernels.logit_floors.definition import LogitFloors
from workers.kernels.logit_floors.numpy import logit_floors
from workers.kernels.probabilities.numpy import pick
from workers.kernels.sentinels import NO_DRAFT, NO_TOKEN
from workers.kernels.verify_drafts.definition import (
    BLOCK,
    DRAFT_OUTSIDE_VOCABULARY,
    DRAFT_UNDEFINED,
    STANDARD,
    STRICT,
    SYNTHETIC,
    TARGET_UNDEFINED,
)

METHODS = (STRICT, STANDARD, SYNTHETIC, BLOCK)
V, K = 5, 2
SURE = [-np.inf, -np.inf, -np.inf, 0, -np.inf]


def row(method: int, drafts: list[int], **changes: Any) -> Drafts:
    """Return one row in which target and drafter are certain of token 3 everywhere."""
    k = len(drafts)
    batch = drafts_of(
        method,
        4,
        2,
        logits=np.array([[SURE] * (1 + k)], dtype=np.float32),
        draft_logits=np.array([[SURE] * k], dtype=np.float32).reshape(1, k, V),
        drafts=np.array([drafts], dtype=np.int64),
        num_drafts=np.array([k]),
        temperature=np.array([BINARY]),
        point_mass=np.zeros(1, dtype=np.int64),
        accept_noise=np.full((1, k), 0.5, dtype=np.float32),
        select_noise=np.full((1, 1 + k, 2, 4), 0.5, dtype=np.float32),
        rates=np.ones(k, dtype=np.float32),
    )
    return replace(batch, **changes)


def sampled_of(batch: Drafts) -> tuple[list[int], int]:
    found = verify(batch)
    return found["sampled"].tolist(), int(found["status"][0])


GREEDY: dict[str, Any] = {"temperature": np.zeros(1, dtype=np.float32)}
CERTAIN: dict[str, Any] = {"point_mass": np.ones(1, dtype=np.int64)}


@pytest.mark.parametrize("changes", [{}, GREEDY, CERTAIN])
@pytest.mark.parametrize("method", METHODS)
def test_unverifiable_draft_ends_drafts_and_target_token_follows(method: int, changes: dict[str, Any]) -> None:
    assert sampled_of(row(method, [3, 3], **changes)) == ([3, 3, 3], 0)
    assert sampled_of(row(method, [3, NO_DRAFT], **changes)) == ([3, 3, NO_TOKEN], 0)
    assert sampled_of(row(method, [NO_DRAFT, 3], **changes)) == ([3, NO_TOKEN, NO_TOKEN], 0)
    for outside in (V, -2, 1 << 40):
        assert sampled_of(row(method, [3, outside], **changes)) == ([3, 3, NO_TOKEN], DRAFT_OUTSIDE_VOCABULARY)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("broken", [[np.nan, 0, 0, 0, 0], [0, 0, 0, 0, np.inf], [-np.inf] * V])
def test_row_ends_where_target_distribution_is_undefined(method: int, broken: list[float]) -> None:
    for changes in ({}, GREEDY, CERTAIN):
        for column, expected in enumerate([[-1, -1, -1], [3, -1, -1], [3, 3, -1]]):
            batch = row(method, [3, 3], **changes)
            batch.logits[0, column] = broken
            assert sampled_of(batch) == (expected, TARGET_UNDEFINED)


@pytest.mark.parametrize("method", METHODS)
def test_draft_without_draft_distribution_is_rejected(method: int) -> None:
    batch = row(method, [3, 3])
    batch.draft_logits[0, 1, 2] = np.nan
    assert sampled_of(batch) == ([3, 3, NO_TOKEN], DRAFT_UNDEFINED)
    # They are not read in a greedy row or for a deterministic draft token.
    assert sampled_of(replace(batch, **GREEDY)) == ([3, 3, 3], 0)
    assert sampled_of(replace(batch, **CERTAIN)) == ([3, 3, 3], 0)


def test_padding_and_invalid_rows_sample_nothing() -> None:
    for changes in ({"num_scheduled": np.zeros(1)}, {"invalid": np.ones(1)}):
        assert sampled_of(row(STANDARD, [3, V], **changes)) == ([NO_TOKEN] * 3, 0)


def test_draft_of_target_probability_zero_is_rejected_at_noise_zero() -> None:
    nothing = np.zeros((1, 2), dtype=np.float32)
    for method in (STRICT, STANDARD, BLOCK):
        for changes in ({}, GREEDY, CERTAIN):
            batch = row(method, [1, 3], accept_noise=nothing, **changes)
            batch.draft_logits[0, 0] = 0
            assert sampled_of(batch)[0] == [3, NO_TOKEN, NO_TOKEN]


def test_synthetic_acceptance_follows_its_rates() -> None:
    rates = np.array([0.75, 0.25], dtype=np.float32)
    for changes in ({}, GREEDY, CERTAIN):
        assert sampled_of(row(SYNTHETIC, [1, 1], rates=rates, **changes))[0] == [1, 3, NO_TOKEN]
        assert sampled_of(row(SYNTHETIC, [1, 1], rates=rates[::-1].copy(), **changes))[0] == [3, NO_TOKEN, NO_TOKEN]


def kept(logits: list[float], top_k: int, top_p: float) -> list[int]:
    floors = np.full(1, 7, dtype=np.float32)
    line = np.array(logits, dtype=np.float32)
    given = (np.array([BINARY]), np.array([top_k]), np.array([top_p], dtype=np.float32), np.zeros(1, dtype=np.int64))
    logit_floors(LogitFloors(line, *given, floors, floors[:0], 0, len(line), len(line)))
    return [int(token) for token in np.flatnonzero(line >= floors[0])]


def test_top_k_keeps_ties_with_the_last_kept_logit() -> None:
    assert kept([3, 1, 2, 0], 2, 1) == [0, 2]
    assert kept([3, 2, 2, 0], 2, 1) == [0, 1, 2]
    assert kept([3, 1, 2, 0], 0, 1) == kept([3, 1, 2, 0], 4, 1) == kept([3, 1, 2, 0], 9, 1) == [0, 1, 2, 3]


def test_top_p_keeps_the_smallest_set_and_the_best_token() -> None:
    # Probabilities 8/15, 2/15, 4/15, 1/15.
    assert kept([3, 1, 2, 0], 0, 0.5) == kept([3, 1, 2, 0], 0, 0) == [0]
    assert kept([3, 1, 2, 0], 0, 0.75) == [0, 2]
    assert kept([3, 1, 2, 0], 0, 0.875) == [0, 1, 2]
    # Among the best two tokens the first has two thirds of the probability.
    assert kept([3, 1, 2, 0], 2, 0.625) == [0]
    assert kept([3, 1, 2, 0], 2, 0.75) == [0, 2]
    # The second token also has all the probability, beyond the precision of a sum.
    assert kept([40, 0, -1], 2, 1) == [0, 1]


@pytest.mark.parametrize("method", [STRICT, STANDARD, BLOCK])
def test_tokens_below_the_floor_are_never_sampled(method: int) -> None:
    rng = np.random.default_rng(method)
    num_rows = 500
    logits, draft_logits = rng.normal(size=(2, num_rows, 3, V)).astype(np.float32)
    floors = np.sort(logits, axis=2)[:, :, -2]
    batch = drafts_of(
        method,
        4,
        2,
        logits=logits,
        draft_logits=draft_logits[:, :2].copy(),
        drafts=rng.integers(0, V, (num_rows, 2)),
        num_drafts=np.full(num_rows, 2),
        temperature=np.ones(num_rows, dtype=np.float32),
        point_mass=rng.integers(0, 2, num_rows),
        accept_noise=rng.random((num_rows, 2), dtype=np.float32),
        select_noise=rng.random((num_rows, 3, 3, 4), dtype=np.float32),
        floors=floors,
    )
    sampled = verify(batch)["sampled"].reshape(num_rows, 3)
    found = np.take_along_axis(logits, sampled.clip(min=0)[:, :, None], axis=2)[:, :, 0]
    assert (found >= floors)[sampled != NO_TOKEN].all()


def test_pick_with_extreme_noise_returns_first_or_last_mass() -> None:
    masses = np.random.default_rng(4).random((2000, 32), dtype=np.float32)
    masses[::2, 20:] = masses[::2, :3] = 0
    # Summed in another order the masses exceed the running sum.
    is_rounded = np.cumsum(masses, axis=1)[:, -1] < masses.sum(axis=1)
    assert is_rounded[::2].sum() > 100
    assert is_rounded[1::2].sum() > 100
    first, last = np.tile([3, 0], 1000), np.tile([19, 31], 1000)
    assert [pick(each, np.float32(1 - 2**-24)) for each in masses] == last.tolist()
    assert [pick(each, np.float32(0)) for each in masses] == first.tolist()

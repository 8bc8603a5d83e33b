"""Committed tokens follow the target: sampled, with real weights and a large vocabulary.

G-tests of the first two committed tokens. FAMILY_ERROR bounds the chance that any of them fails on a correct sampler,
were the noise drawn anew; it is drawn from fixed seeds, so the outcome never changes.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.workers.kernels.verification import Drafts, drafts_of, verify
from workers.kernels.draw_noise.definition import DrawNoise
from workers.kernels.draw_noise.numpy import draw_noise
from workers.kernels.logit_floors.definition import LogitFloors
from workers.kernels.logit_floors.numpy import logit_floors
from workers.kernels.sentinels import NO_TOKEN
from workers.kernels.verify_drafts.definition import BLOCK, STANDARD, STRICT

Array = NDArray[Any]

FAMILY_ERROR = 1e-6
NUM_TESTS = 11
# The normal quantile of FAMILY_ERROR / NUM_TESTS, one-sided.
QUANTILE = 5.22

V, K, NUM_TRIES = 40, 2, 3
# A sampler that is wrong is found by far fewer batches than say that one is right.
NUM_ROWS, NUM_BATCHES, FEW_BATCHES = 5000, 8, 2
TEMPERATURE = np.float32(0.7)


def g_statistic(counts: Array, law: Array) -> tuple[float, float]:
    """Return G, and the bound that it exceeds with one test's probability (Wilson-Hilferty)."""
    expected = law.ravel() * counts.sum()
    order = np.argsort(expected)
    few = order[: max(int(np.searchsorted(np.cumsum(expected[order]), 5)) + 1, int((expected < 5).sum()))]
    many = np.setdiff1d(order, few)
    observed = np.append(counts.ravel()[many], counts.ravel()[few].sum())
    expected = np.append(expected[many], expected[few].sum())
    assert observed[expected == 0].sum() == 0, "a token without probability was committed"
    seen = observed > 0
    statistic = 2 * float((observed[seen] * np.log(observed[seen] / expected[seen])).sum())
    degrees = len(observed) - 1
    return statistic, degrees * (1 - 2 / (9 * degrees) + QUANTILE * np.sqrt(2 / (9 * degrees))) ** 3


def law_of(logits: Array, floor: float) -> Array:
    weights = np.where(logits >= floor, np.exp(logits.astype(np.float64) / float(TEMPERATURE)), 0)
    law: Array = weights / weights.sum()
    return law


def counted(
    method: int, point_mass: bool, top_k: int, top_p: float, change: Any = None, num_batches: int = NUM_BATCHES
) -> tuple[Array, Array]:
    """Return how often each pair of tokens was committed, and its expected distribution."""
    rng = np.random.default_rng([method, point_mass, top_k])
    logits = rng.normal(scale=1.5, size=(1 + K, V)).astype(np.float32)
    draft_logits = (logits[:K] + rng.normal(scale=0.7, size=(K, V))).astype(np.float32)
    floors = np.empty(1 + K, dtype=np.float32)
    limits = (np.array([top_k]), np.array([top_p], dtype=np.float32), np.array([K]))
    logit_floors(LogitFloors(logits.ravel(), np.array([TEMPERATURE]), *limits, floors, floors[:0], K, V, V))
    laws = [law_of(logits[c], floors[c]) for c in range(1 + K)]
    proposals = [law_of(each, -np.inf) for each in draft_logits]
    counts = np.zeros((V, V))
    for number in range(num_batches):
        batch = _batch(method, point_mass, logits, draft_logits, floors, proposals, number, rng)
        sampled = verify(change(batch) if change else batch)["sampled"].reshape(NUM_ROWS, 1 + K)
        second = np.where(sampled[:, 1] == NO_TOKEN, rng.choice(V, NUM_ROWS, p=laws[1]), sampled[:, 1])
        np.add.at(counts, (sampled[:, 0], second), 1)
    return counts, np.outer(laws[0], laws[1])


def _batch(
    method: int, point_mass: bool, logits: Array, draft_logits: Array, floors: Array, proposals: list[Array],
    number: int, rng: np.random.Generator,
) -> Drafts:  # fmt: skip
    accept = np.empty(NUM_ROWS * K, dtype=np.float32)
    select = np.empty(NUM_ROWS * (1 + K) * (1 + NUM_TRIES) * 4, dtype=np.float32)
    # Every row is another request, at distant positions.
    seeds = np.arange(NUM_ROWS, dtype=np.uint64) + np.uint64(number * NUM_ROWS)
    draw_noise(DrawNoise(seeds, np.full(NUM_ROWS, 1000), accept, select, K, NUM_TRIES))
    if point_mass:
        drafts = np.tile(draft_logits.argmax(axis=1), (NUM_ROWS, 1))
    else:
        drafts = np.stack([rng.choice(V, NUM_ROWS, p=law) for law in proposals], axis=1)
    return drafts_of(
        method,
        16,
        4,
        logits=np.broadcast_to(logits, (NUM_ROWS, 1 + K, V)),
        draft_logits=np.broadcast_to(draft_logits, (NUM_ROWS, K, V)),
        drafts=drafts.astype(np.int64),
        num_drafts=np.full(NUM_ROWS, K),
        temperature=np.full(NUM_ROWS, TEMPERATURE),
        point_mass=np.full(NUM_ROWS, int(point_mass)),
        accept_noise=accept.reshape(NUM_ROWS, K),
        select_noise=select.reshape(NUM_ROWS, 1 + K, 1 + NUM_TRIES, 4),
        floors=np.broadcast_to(floors, (NUM_ROWS, 1 + K)),
    )


@pytest.mark.parametrize("method", [STRICT, STANDARD, BLOCK])
@pytest.mark.parametrize(("point_mass", "top_k", "top_p"), [(False, 0, 1.0), (True, 0, 1.0), (False, 25, 0.9)])
def test_first_two_tokens_follow_the_target_law(method: int, point_mass: bool, top_k: int, top_p: float) -> None:
    statistic, bound = g_statistic(*counted(method, point_mass, top_k, top_p))
    assert statistic < bound


def test_recovery_from_target_distribution_is_detected() -> None:
    def recover_from_the_target(batch: Drafts) -> Drafts:
        # Every first try is accepted, independently of the draft probability.
        select = batch.select_noise.copy()
        select[:, :, 0, 3] = -1e9
        return replace(batch, select_noise=select)

    statistic, bound = g_statistic(*counted(STANDARD, False, 0, 1.0, recover_from_the_target, FEW_BATCHES))
    assert statistic > bound


@pytest.mark.parametrize("method", [STANDARD, BLOCK])
def test_consecutive_verifications_share_no_noise(method: int) -> None:
    law, num_rows = np.array([0.6, 0.4]), 20_000
    committed: list[list[int]] = [[] for _ in range(num_rows)]
    # A verification that rejects all has judged both drafts; the next judges one position again.
    while todo := [row for row, tokens in enumerate(committed) if len(tokens) < 2]:
        accept = np.empty(len(todo) * K, dtype=np.float32)
        select = np.empty(len(todo) * (1 + K) * 4, dtype=np.float32)
        draw_noise(DrawNoise(np.array(todo), np.array([9 + len(committed[row]) for row in todo]), accept, select, K, 0))
        batch = drafts_of(
            method,
            16,
            4,
            logits=np.broadcast_to(np.log(law).astype(np.float32), (len(todo), 1 + K, 2)),
            draft_logits=np.empty((0, K, 2), dtype=np.float32),
            drafts=np.zeros((len(todo), K), dtype=np.int64),
            num_drafts=np.full(len(todo), K),
            temperature=np.ones(len(todo), dtype=np.float32),
            point_mass=np.ones(len(todo), dtype=np.int64),
            accept_noise=accept.reshape(len(todo), K),
            select_noise=select.reshape(len(todo), 1 + K, 1, 4),
        )
        for row, tokens in zip(todo, verify(batch)["sampled"].reshape(-1, 1 + K).tolist(), strict=True):
            committed[row] += [token for token in tokens if token != NO_TOKEN]
    counts = np.zeros((2, 2))
    np.add.at(counts, tuple(np.array([tokens[:2] for tokens in committed]).T), 1)
    statistic, bound = g_statistic(counts, np.outer(law, law))
    assert statistic < bound

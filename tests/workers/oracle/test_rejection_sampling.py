"""The oracle verifies sampled draft tokens like the ops, unless it is ambiguous.

Verifies: its tokens against the definitions of the ops, with tries and with what drafts left added up, and its bound on
what float32 may do otherwise, with noise as close to the places where it matters as the bound allows.
Does not verify: that either has the target's law (test_lossless, benchmarks.conformance.distribution).
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from scenarios.sampling import SamplingParams
from scenarios.spec import SamplingMethod
from tests.workers.kernels.verification import Drafts, drafts_of, verify
from tests.workers.oracle.test_random_sampling import METHODS, RATES, K, around, batch_of, rows_of, tokens_of
from workers.kernels.draft_sampling.definition import NUMBERS_PER_DRAFT, DraftNoise
from workers.kernels.draft_sampling.numpy import draft_noise, sampled_token
from workers.kernels.probabilities.blocks import TILE_SIZE, block_size_of
from workers.kernels.probabilities.numpy import LOG2E
from workers.oracle import rejection_sampling as rejection
from workers.oracle.logits_processing import ONE
from workers.oracle.random_sampling import Proposal, propose, target_of
from workers.oracle.rejection_sampling import NUM_TRIES, Draft, VerifiedTokens, accept_block, is_accepted

Array = NDArray[Any]


class Drawn:
    """Random rows with sampled draft tokens; draft and target distributions are equal or not."""

    def __init__(self, num_rows: int, vocab_size: int, seed: int) -> None:
        rows = rows_of(num_rows, vocab_size, seed)
        rng = np.random.default_rng([seed, vocab_size])
        self.params = [
            each if each.temperature else each.model_copy(update={"temperature": 1.0}) for each in rows.params
        ]
        self.logits, self.positions = rows.logits, rows.positions
        self.draft_logits = rng.integers(0, 1 << 24, (num_rows, K, vocab_size))
        alike = (rng.random((num_rows, K)) < 0.6) & (self.logits[:, :K] >= 0).all(axis=2)
        self.draft_logits[alike] = self.logits[:, :K][alike].astype(np.int64)
        self.proposals = [
            [propose(self.draft_logits[row, column].tolist(), params, position, column) for column in range(K)]
            for row, (params, position) in enumerate(zip(self.params, self.positions.tolist(), strict=True))
        ]

    def expected(self, method: SamplingMethod) -> list[VerifiedTokens]:
        return [
            rejection.verify(
                method, lines.tolist(), [draft.token for draft in drafts], params, RATES, at, proposals=drafts
            )
            for lines, drafts, params, at in zip(
                self.logits, self.proposals, self.params, self.positions.tolist(), strict=True
            )
        ]

    def batch(self, method: SamplingMethod) -> Drafts:
        drafts = np.array([[each.token for each in proposals] for proposals in self.proposals])
        drawn_from = self.draft_logits.astype(np.float32)
        return batch_of(method, self.logits, drawn_from, drafts, self.params, self.positions, NUM_TRIES)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("num_rows", "vocab_size"), [(200, 2), (500, 8), (500, 32), (40, 300), (2, 4500)])
def test_oracle_tokens_equal_the_ops_tokens_unless_ambiguous(
    method: SamplingMethod, num_rows: int, vocab_size: int
) -> None:
    rows = Drawn(num_rows, vocab_size, METHODS[method])
    expected, found = rows.expected(method), tokens_of(verify(rows.batch(method))["sampled"])
    for row, tokens in zip(expected, found, strict=True):
        assert row.is_ambiguous or row.tokens == tokens
    # Error bounds grow with the terms of a sum, and so does the number of ambiguous bounds.
    assert sum(row.is_ambiguous for row in expected) <= 1 + num_rows * vocab_size / 4000
    if method in ("standard", "block") and vocab_size in (8, 32):
        assert {probe for row in expected for probe in row.happened} == {
            "recovered_by_a_try",
            "recovered_from_the_rest",
        }


@pytest.mark.parametrize("vocab_size", [2, 32, 300, 4500])
def test_oracle_proposals_equal_drawn_chain(vocab_size: int) -> None:
    rng = np.random.default_rng(vocab_size)
    num_rows = 40
    logits = rng.integers(0, 1 << 24, (num_rows, vocab_size))
    temperature = rng.choice([0.25, 1.0, 8.0], num_rows)
    seeds, positions = rng.integers(0, 1 << 62, num_rows), rng.choice([0, 77, (1 << 32) - 1], num_rows)
    noise = np.full(num_rows * K * NUMBERS_PER_DRAFT, np.nan, dtype=np.float32)
    # The first draft token is two positions after the last accepted token.
    draft_noise(DraftNoise(seeds, positions, np.arange(num_rows), noise, K))
    numbers = noise.reshape(num_rows, K, NUMBERS_PER_DRAFT)
    for index in range(K):
        scale = LOG2E / (temperature * ONE).astype(np.float32)
        found = [
            sampled_token(line, line.max(), scale[row], numbers[row, index], block_size_of(vocab_size), TILE_SIZE)
            for row, line in enumerate(logits.astype(np.float32))
        ]
        for row in range(num_rows):
            params = SamplingParams(temperature=float(temperature[row]), seed=int(seeds[row]))
            expected = propose(logits[row].tolist(), params, int(positions[row]) + 2, index)
            assert expected.is_ambiguous or expected.token == found[row]


def narrow(vocab_size: int, seed: int) -> tuple[Array, Array, SamplingParams, Draft]:
    """Return similar target and draft logits for one tile, a temperature, and a draft token."""
    rng = np.random.default_rng([vocab_size, seed, 7])
    logits = rng.integers(0, 1 << 24, vocab_size)
    proposed = np.clip(logits + rng.integers(-(1 << 20), 1 << 20, vocab_size), 0, (1 << 24) - 1)
    params = SamplingParams(temperature=float(rng.choice([0.5, 1.0, 2.0, 8.0])))
    made = propose(proposed.tolist(), params, seed, 0)
    target = target_of([float(logit) for logit in logits], params)
    assert target is not None
    return logits, proposed, params, Draft(made.token, target, Proposal(made.token, made.logits, made.masses, False))


def kept_by_ops(
    method: SamplingMethod, cases: list[tuple[Array, Array, SamplingParams, Draft, float]], k: int
) -> Array:
    """Return how many of `k` equal draft tokens the ops accept, with one number as all noise."""
    num_rows, vocab_size = len(cases), len(cases[0][0])
    numbers = np.array([number for *_, number in cases], dtype=np.float32)
    batch = drafts_of(
        METHODS[method],
        block_size_of(vocab_size),
        TILE_SIZE,
        logits=np.stack([np.stack([logits] * (1 + k)) for logits, *_ in cases]).astype(np.float32),
        draft_logits=np.stack([np.stack([each[1]] * k) for each in cases]).astype(np.float32),
        drafts=np.array([[draft.token] * k for _, _, _, draft, _ in cases]),
        num_drafts=np.full(num_rows, k),
        temperature=np.array([params.temperature * ONE for _, _, params, *_ in cases], dtype=np.float32),
        point_mass=np.zeros(num_rows, dtype=np.int64),
        accept_noise=np.broadcast_to(numbers[:, None], (num_rows, k)),
        select_noise=np.broadcast_to(numbers[:, None, None, None], (num_rows, 1 + k, 1, 4)),
    )
    kept: Array = (verify(batch)["sampled"].reshape(num_rows, 1 + k) >= 0).sum(axis=1) - 1
    return kept


def together(draft: Draft, number: float) -> tuple[int, bool]:
    kept, _, is_ambiguous = accept_block([draft, draft], [number, number])
    return kept, is_ambiguous


def borders(answer: Callable[[float], int]) -> Iterator[float]:
    """Yield the random numbers, to the 24th bit, at which a result changes."""
    for low, high in pairwise(step / 8 for step in range(9)):
        below, above = low, high
        while answer(below) != answer(above):
            middle = (below + above) / 2
            if above - below <= 2.0**-24:
                yield above
                break
            below, above = (middle, above) if answer(middle) == answer(below) else (below, middle)


@pytest.mark.parametrize(("num_cases", "vocab_size"), [(24, 3), (10, 32), (4, 128)])
def test_ops_keep_the_oracles_drafts_just_outside_ambiguity(num_cases: int, vocab_size: int) -> None:
    single, pairs, wanted, wanted_of_pairs = [], [], [], []
    for seed in range(num_cases):
        logits, proposed, params, draft = narrow(vocab_size, seed)
        for near in borders(lambda number, draft=draft: int(is_accepted(number, draft)[0])):  # type: ignore[misc]
            for number in around(near, lambda number, draft=draft: is_accepted(number, draft)[1]):  # type: ignore[misc]
                single.append((logits, proposed, params, draft, number))
                wanted.append(int(is_accepted(number, draft)[0]))
        for near in borders(lambda number, draft=draft: together(draft, number)[0]):  # type: ignore[misc]
            for number in around(near, lambda number, draft=draft: together(draft, number)[1]):  # type: ignore[misc]
                pairs.append((logits, proposed, params, draft, number))
                wanted_of_pairs.append(together(draft, number)[0])
    assert len(single) > num_cases / 2
    assert len(pairs) > num_cases / 2
    np.testing.assert_array_equal(kept_by_ops("standard", single, 1), wanted)
    np.testing.assert_array_equal(kept_by_ops("block", pairs, 2), wanted_of_pairs)

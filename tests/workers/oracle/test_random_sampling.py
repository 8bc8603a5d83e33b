"""The oracle's sampled tokens equal the ops' tokens, unless the oracle is ambiguous.

Verifies: its tokens against the definitions of the ops and their Triton twins, and its bound on what float32 may do
otherwise, with noise as close to the places where it matters as the bound allows.
Does not verify: that either has the target's law (test_lossless, test_distribution).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from scenarios.sampling import SamplingParams
from scenarios.spec import SamplingMethod
from tests.workers.kernels.verification import Drafts, drafts_of, verify
from workers.kernels.draw_noise import numpy as noise_kernel
from workers.kernels.draw_noise.definition import DrawNoise
from workers.kernels.logit_floors.definition import LogitFloors
from workers.kernels.logit_floors.numpy import logit_floors
from workers.kernels.probabilities.blocks import TILE_SIZE, block_size_of
from workers.kernels.verify_drafts import definition as verify_drafts
from workers.oracle import rejection_sampling as rejection
from workers.oracle.logits_processing import ONE
from workers.oracle.random_sampling import Mass, choose, pick, target_of
from workers.oracle.rejection_sampling import Draft, VerifiedTokens, accept_block, is_accepted

Array = NDArray[Any]

METHODS: dict[SamplingMethod, int] = {
    "strict": verify_drafts.STRICT,
    "standard": verify_drafts.STANDARD,
    "synthetic": verify_drafts.SYNTHETIC,
    "block": verify_drafts.BLOCK,
}
TEMPERATURES = (0.0, 1 / 16, 0.25, 0.7, 1.0, 1.3, 8.0)
RATES = (0.75, 0.5, 0.3)
K = len(RATES)
STEPS_MAX = 2000
# Logits of every column, drafts, and the one number that is all noise which matters.
Case = tuple[Array, SamplingParams, list[int], float]


@dataclass(frozen=True, slots=True)
class Rows:
    """Random rows, each with its own sampling parameters: logits [B, 1 + K, V], drafts [B, K]."""

    logits: Array
    drafts: Array
    params: list[SamplingParams]
    positions: Array

    def expected(self, method: SamplingMethod) -> list[VerifiedTokens]:
        """Return the oracle's sampled tokens for each row."""
        return [
            rejection.verify(method, lines.tolist(), drafts.tolist(), params, RATES, position)
            for lines, drafts, params, position in zip(
                self.logits, self.drafts, self.params, self.positions.tolist(), strict=True
            )
        ]

    def batch(self, method: SamplingMethod, num_tries: int = 0) -> Drafts:
        """Return the rows as arguments of the ops; their draft tokens are deterministic."""
        none = np.empty((0, K, self.logits.shape[2]), dtype=np.float32)
        return batch_of(method, self.logits, none, self.drafts, self.params, self.positions, num_tries)


def batch_of(
    method: SamplingMethod,
    logits: Array,
    draft_logits: Array,
    drafts: Array,
    params: Sequence[SamplingParams],
    positions: Array,
    num_tries: int,
) -> Drafts:
    """Return rows as arguments of the ops, with the noise and floors that other ops compute.

    Drafts without logits are certain.
    """
    num_rows, _, vocab_size = logits.shape
    temperature = np.array([each.temperature * ONE for each in params], dtype=np.float32)
    accept = np.full(num_rows * K, np.nan, dtype=np.float32)
    select = np.full(num_rows * (1 + K) * (1 + num_tries) * 4, np.nan, dtype=np.float32)
    seeds = np.array([each.seed for each in params], dtype=np.uint64)
    noise_kernel.draw_noise(DrawNoise(seeds, positions, accept, select, K, num_tries))
    floors, num_drafts = np.full(num_rows * (1 + K), np.nan, dtype=np.float32), np.full(num_rows, K)
    limits = (
        np.array([each.top_k for each in params]),
        np.array([each.top_p for each in params], dtype=np.float32),
    )
    logit_floors(
        LogitFloors(logits.ravel(), temperature, *limits, num_drafts, floors, floors[:0], K, vocab_size, vocab_size)
    )
    return drafts_of(
        METHODS[method],
        block_size_of(vocab_size),
        TILE_SIZE,
        logits=logits,
        draft_logits=draft_logits,
        drafts=drafts,
        num_drafts=num_drafts,
        temperature=temperature,
        point_mass=np.full(num_rows, not len(draft_logits), dtype=np.int64),
        accept_noise=accept.reshape(num_rows, K),
        select_noise=select.reshape(num_rows, 1 + K, 1 + num_tries, 4),
        floors=floors.reshape(num_rows, 1 + K),
        rates=np.array(RATES, dtype=np.float32),
    )


def rows_of(num_rows: int, vocab_size: int, seed: int) -> Rows:
    """Return rows with the model's logits, some processed or missing, and various draft tokens."""
    rng = np.random.default_rng([num_rows, vocab_size, seed])
    logits = rng.integers(0, 1 << 24, (num_rows, 1 + K, vocab_size)).astype(np.float32)
    some = rng.random(logits.shape) < 0.2
    logits[some] = (logits[some] * 0.5 - ONE * rng.integers(-128, 129, int(some.sum())) / 64).astype(np.float32)
    logits[rng.random(logits.shape) < 0.1] = -np.inf
    broken = rng.random((num_rows, 1 + K))
    logits[broken < 0.01] = -np.inf
    logits[broken > 0.995, rng.integers(vocab_size)] = np.nan
    likely = np.where(np.isnan(logits), -np.inf, logits).argmax(axis=2)[:, :K]
    drafts = np.where(rng.random((num_rows, K)) < 0.7, likely, rng.integers(-1, vocab_size + 1, (num_rows, K)))
    params = [
        SamplingParams(
            temperature=float(rng.choice(TEMPERATURES)),
            top_k=int(rng.integers(0, vocab_size + 2)) if rng.random() < 0.3 else 0,
            top_p=float(rng.choice([0.1, 0.5, 0.9, 0.99])) if rng.random() < 0.3 else 1.0,
            seed=int(rng.integers(0, 1 << 63)),
        )
        for _ in range(num_rows)
    ]
    return Rows(logits, drafts, params, rng.choice([1, 77, (1 << 32) - 2], num_rows))


def tokens_of(sampled: Array) -> list[tuple[int, ...]]:
    return [tuple(token for token in row if token >= 0) for row in sampled.reshape(-1, 1 + K).tolist()]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("num_rows", "vocab_size"), [(100, 2), (300, 8), (300, 32), (30, 300)])
def test_oracle_tokens_equal_the_ops_tokens_unless_ambiguous(
    method: SamplingMethod, num_rows: int, vocab_size: int
) -> None:
    rows = rows_of(num_rows, vocab_size, METHODS[method])
    results = verify(rows.batch(method))
    expected, found, told = rows.expected(method), tokens_of(results["sampled"]), results["status"].tolist()
    for row, tokens, status in zip(expected, found, told, strict=True):
        assert row.is_ambiguous or row.tokens == tokens
        assert row.is_ambiguous or row.has_target == (status & verify_drafts.TARGET_UNDEFINED == 0)
    assert sum(row.is_ambiguous for row in expected) <= 1
    assert vocab_size == 300 or {len(tokens) for tokens in found} == {*range(2 + K)}


def test_token_of_a_position_is_independent_of_column_and_tries() -> None:
    rows = rows_of(60, 16, 9)
    for lines, params, position in zip(rows.logits, rows.params, rows.positions.tolist(), strict=True):
        decision = choose(lines[1].tolist(), params, position + 1)
        if decision.token is not None and choose(lines[0].tolist(), params, position).token is not None:
            first = choose(lines[0].tolist(), params, position).token
            assert first is not None
            both = rejection.verify("strict", lines[:2].tolist(), [first], params, RATES, position)
            assert both.tokens == (first, decision.token)
    for method in METHODS:
        one, many = (verify(rows.batch(method, num_tries))["sampled"] for num_tries in (0, 5))
        np.testing.assert_array_equal(one, many)


@pytest.mark.parametrize("bad", [[np.nan, 1.0], [np.inf, 1.0], [-np.inf, -np.inf]])
def test_undefined_distribution_gives_no_token(bad: list[float]) -> None:
    params = SamplingParams(temperature=1.0)
    assert choose(bad, params, 5).token is None
    for method in METHODS:
        row = rejection.verify(method, [[0.0, -np.inf], bad, bad], [0, 0], params, (1.0, 1.0), 5)
        assert row == VerifiedTokens((0,), is_ambiguous=False, has_target=False)


def test_greedy_rows_are_never_ambiguous() -> None:
    rows = rows_of(200, 8, 3)
    greedy = Rows(rows.logits, rows.drafts, [SamplingParams(seed=7)] * 200, rows.positions)
    for method in METHODS:
        assert not any(row.is_ambiguous for row in greedy.expected(method))


def narrow(vocab_size: int, seed: int) -> tuple[Array, SamplingParams, int]:
    """Return random logits for one vocabulary tile, a temperature, and a token id."""
    rng = np.random.default_rng([vocab_size, seed])
    logits = rng.integers(0, 1 << 24, vocab_size).astype(np.float32)
    return logits, SamplingParams(temperature=float(rng.choice([0.5, 1.0, 2.0, 8.0]))), int(rng.integers(vocab_size))


def around(near: float, is_ambiguous: Callable[[float], bool]) -> Iterator[float]:
    """Yield the closest unambiguous random numbers below and above a bound."""
    for side in (-1, 1):
        numbers = range(round(near * 2**24), round(near * 2**24) + side * STEPS_MAX, side)
        clear = next((number for number in numbers if not is_ambiguous(number / 2**24)), -1)
        if 0 <= clear < 1 << 24:
            yield clear / 2**24


def sampled_by_ops(method: SamplingMethod, cases: Sequence[Case]) -> Array:
    """Return the tokens that the ops sample."""
    num_rows, k, vocab_size = len(cases), len(cases[0][2]), len(cases[0][0])
    numbers = np.array([number for *_, number in cases], dtype=np.float32)
    batch = drafts_of(
        METHODS[method],
        block_size_of(vocab_size),
        TILE_SIZE,
        logits=np.stack([np.stack([logits] * (1 + k)) for logits, *_ in cases]),
        draft_logits=np.empty((0, k, vocab_size), dtype=np.float32),
        drafts=np.array([drafts for _, _, drafts, _ in cases], dtype=np.int64).reshape(num_rows, k),
        num_drafts=np.full(num_rows, k),
        temperature=np.array([params.temperature * ONE for _, params, *_ in cases], dtype=np.float32),
        point_mass=np.ones(num_rows, dtype=np.int64),
        accept_noise=np.broadcast_to(numbers[:, None], (num_rows, k)),
        select_noise=np.broadcast_to(numbers[:, None, None, None], (num_rows, 1 + k, 1, 4)),
    )
    return verify(batch)["sampled"].reshape(num_rows, 1 + k)


@pytest.mark.parametrize(("num_cases", "vocab_size"), [(150, 3), (80, 32), (40, 128)])
def test_ops_select_the_oracles_token_just_outside_ambiguity(num_cases: int, vocab_size: int) -> None:
    cases: list[Case] = []
    expected = []
    for seed in range(num_cases):
        logits, params, token = narrow(vocab_size, seed)
        target = target_of(logits.tolist(), params)
        assert target is not None
        near = sum(target.probabilities()[: token + 1])
        for number in around(near, partial(_may_differ, target.masses)):
            cases.append((logits, params, [], number))
            expected.append(pick(target.masses, number)[0])
    assert len(cases) > num_cases
    np.testing.assert_array_equal(sampled_by_ops("strict", cases)[:, 0], expected)


def _may_differ(masses: Sequence[Mass], number: float) -> bool:
    return pick(masses, number)[1]


def _may_keep_others(draft: Draft, number: float) -> bool:
    return accept_block([draft, draft], [number, number])[2]


def _may_not_be_within(draft: Draft, number: float) -> bool:
    return is_accepted(number, draft)[1]


def test_ops_select_other_tokens_inside_ambiguity() -> None:
    cases: list[Case] = []
    expected = []
    for seed in range(300):
        logits, params, token = narrow(128, seed)
        target = target_of(logits.tolist(), params)
        assert target is not None
        number = round(sum(target.probabilities()[: token + 1]) * 2**24 - 0.5) / 2**24
        if number < 1:
            cases.append((logits, params, [], number))
            expected.append(pick(target.masses, number)[0])
    assert (sampled_by_ops("strict", cases)[:, 0] != expected).any()


@pytest.mark.parametrize(("num_cases", "vocab_size"), [(150, 3), (80, 32), (40, 128)])
def test_ops_keep_the_oracles_drafts_just_outside_ambiguity(num_cases: int, vocab_size: int) -> None:
    single, together = [], []
    for seed in range(num_cases):
        logits, params, token = narrow(vocab_size, seed)
        target = target_of(logits.tolist(), params)
        assert target is not None
        draft, joint_ratio = Draft(token, target), target.probabilities()[token]
        for number in around(joint_ratio, partial(_may_not_be_within, draft)):
            single.append(((logits, params, [token], number), is_accepted(number, draft)[0]))
        # At the bound for one draft token and for both: one number decides about both.
        for near in (joint_ratio / (1 + joint_ratio), joint_ratio**2):
            for number in around(near, partial(_may_keep_others, draft)):
                pair = accept_block([draft, draft], [number, number])
                together.append(((logits, params, [token, token], number), pair[0]))
    kept = sampled_by_ops("standard", [case for case, _ in single])[:, 1] >= 0
    np.testing.assert_array_equal(kept, [is_kept for _, is_kept in single])
    assert len(together) > num_cases
    num_kept = (sampled_by_ops("block", [case for case, _ in together]) >= 0).sum(axis=1) - 1
    np.testing.assert_array_equal(num_kept, [number for _, number in together])

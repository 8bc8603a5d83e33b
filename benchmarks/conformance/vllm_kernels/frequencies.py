"""Compare token frequencies of vLLM's rejection samplers with the target distribution.

Many rows have the same logits; their draft tokens are sampled from the drafter's distribution. The first token of each
row must follow the target distribution, and so must the second where the first draft token was accepted. Our op must
pass the same tests.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from vllm.v1.sample import rejection_sampler as v1

from benchmarks.conformance.vllm_kernels.comparison import Array, Comparison, Found, Ours
from benchmarks.conformance.vllm_kernels.verification import sample_v2
from tests.workers.kernels.cases.residual_mass import known
from tests.workers.kernels.cases.sampling import Sizes, batch, made
from workers.judge.distribution import Outcome, chance_of, g_test
from workers.kernels.residual_mass.definition import ResidualMass, residual_mass
from workers.kernels.sentinels import NO_DRAFT, NO_TOKEN
from workers.kernels.verify_drafts.definition import BLOCK, STANDARD, VerifyDrafts

DRAWN, CERTAIN = "sampled draft tokens", "deterministic draft tokens"
PLACEHOLDER = "draft tokens that were not proposed, in a batch with draft probabilities"
CHANCE_MIN = 1e-6
_SIZES = Sizes(num_rows=150, k=2, vocab_size=6, block_size=16, tile_size=16, num_tries=1)


class _Drawn(NamedTuple):
    """Target and drafter distributions by column, and sampled draft tokens by row."""

    condition: str
    target: Array
    draft: Array
    drafts: Array


def _drawn() -> Iterator[_Drawn]:
    """Yield batches in which acceptance is by chance and some tokens have probability 0."""
    rng, (rows, k, size) = np.random.default_rng(7), (_SIZES.num_rows, _SIZES.k, _SIZES.vocab_size)
    target = rng.dirichlet(np.ones(size), 1 + k)
    draft = rng.dirichlet(np.ones(size), k)
    target[:, 2] = draft[:, 4] = 0
    target, draft = target / target.sum(1, keepdims=True), draft / draft.sum(1, keepdims=True)
    drafts = np.stack([rng.choice(size, rows, p=draft[column]) for column in range(k)], axis=1)
    yield _Drawn(DRAWN, target, draft, drafts)
    yield _Drawn(PLACEHOLDER, target, draft, np.full((rows, k), NO_DRAFT))
    likely = target[:k].argmax(1)
    yield _Drawn(CERTAIN, target, np.eye(size)[likely], np.tile(likely, (rows, 1)))


def _logits(law: Array) -> Array:
    with np.errstate(divide="ignore"):
        logits: Array = np.log(law).astype(np.float32)
    return logits


def _first_wrong(drawn: _Drawn, sampled: Sequence[Sequence[int]]) -> str:
    """Return the first output position with wrong token frequencies, as text, or ""."""
    for column in range(_SIZES.k):
        pairs = zip(sampled, drawn.drafts[:, :column].tolist(), strict=True)
        seen: Counter[Outcome] = Counter(
            (row[column],) for row, kept in pairs if len(row) > column and list(row[:column]) == kept
        )
        law: dict[Outcome, float] = {(token,): float(p) for token, p in enumerate(drawn.target[column]) if p > 0}
        if seen and chance_of(*g_test(seen, law)) < CHANCE_MIN:
            shares = {token: round(count / seen.total(), 2) for (token, *_), count in sorted(seen.items())}
            wanted = {token: round(p, 2) for (token, *_), p in law.items()}
            return f"token {column + 1} has frequencies {shares}, not {wanted}"
    return ""


def _ours(drawn: _Drawn, method: int, ours: Ours) -> list[list[int]]:
    """Return the tokens that our rejection-sampling op samples for a batch, by row."""
    given: dict[str, Any] = batch(_SIZES, 1, method, is_exact=False)
    rows, k = _SIZES.num_rows, _SIZES.k
    given["logits"] = np.tile(_logits(drawn.target), (rows, 1)).ravel()
    given["draft_logits"] = np.tile(_logits(drawn.draft), (rows + 2, 1)).ravel()
    given["draft_slots"], given["drafts"] = np.arange(rows), drawn.drafts.ravel()
    given["floors"] = np.full(rows * (1 + k), -np.inf, dtype=np.float32)
    given["temperature"], given["invalid"] = np.ones(rows, dtype=np.float32), np.zeros(rows, dtype=np.int64)
    given["num_drafts"], given["num_scheduled"] = np.full(rows, k), np.full(rows, 1 + k)
    given["point_mass"] = np.full(rows, int(drawn.condition == CERTAIN))
    case = known(given)
    if method == BLOCK:
        residual_mass(made(ResidualMass, case))
    sampled = ours(made(VerifyDrafts, case))["sampled"].reshape(rows, -1)
    return [[token for token in row if token != NO_TOKEN] for row in sampled.tolist()]


def laws_v1(ours: Ours) -> Iterator[Found]:
    """Test token frequencies of the v1 runner's sampler and its recovered-token kernel."""
    rows, k = _SIZES.num_rows, _SIZES.k
    for drawn in _drawn():
        torch.manual_seed(0)
        sampled = v1.rejection_sample(
            torch.tensor(drawn.drafts.ravel(), dtype=torch.int32),
            [k] * rows,
            k,
            torch.arange(1, 1 + rows, dtype=torch.int32) * k,
            None if drawn.condition == CERTAIN else torch.tensor(np.tile(drawn.draft, (rows, 1)), dtype=torch.float32),
            torch.tensor(np.tile(_logits(drawn.target[:k]), (rows, 1))),
            torch.zeros(rows, 1, dtype=torch.int64),
            SimpleNamespace(all_greedy=False, all_random=True, generators={}, temperature=torch.ones(rows)),
        )
        theirs = [[token for token in row if token != NO_TOKEN] for row in sampled.tolist()]
        yield Found(drawn.condition, _first_wrong(drawn, _ours(drawn, STANDARD, ours)), _first_wrong(drawn, theirs))


def standard_v2(ours: Ours) -> Iterator[Found]:
    """Test token frequencies of the v2 runner's sampler with standard verification."""
    return _laws_v2(ours, STANDARD)


def block_v2(ours: Ours) -> Iterator[Found]:
    """Test token frequencies of the v2 runner's sampler with block verification."""
    return _laws_v2(ours, BLOCK)


def _laws_v2(ours: Ours, method: int) -> Iterator[Found]:
    rows, k = _SIZES.num_rows, _SIZES.k
    for drawn in _drawn():
        theirs = sample_v2(
            [_logits(drawn.target)] * rows,
            list(drawn.drafts),
            None if drawn.condition == CERTAIN else np.tile(_logits(drawn.draft), (rows, 1, 1)),
            np.ones(rows),
            np.arange(rows) + 7,
            k,
            is_block=method == BLOCK,
        )
        yield Found(drawn.condition, _first_wrong(drawn, _ours(drawn, method, ours)), _first_wrong(drawn, theirs))


_V2 = "worker/gpu/spec_decode/rejection_sampler_utils.py"
COMPARISONS = (
    Comparison(
        "sample_recovered_tokens_kernel: frequencies", "sample/rejection_sampler.py", "verify_drafts, standard", laws_v1
    ),
    Comparison("_resample_kernel: frequencies", _V2, "verify_drafts, standard", standard_v2),
    Comparison("_resample_kernel, block verification: frequencies", _V2, "verify_drafts, block", block_v2),
)

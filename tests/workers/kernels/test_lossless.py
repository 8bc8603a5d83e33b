"""Committed tokens have exactly the target's distribution, and small biases are found.

Verifies: the ops after the logits, for vocabularies up to 4, up to 2 draft tokens, every draft token and kind of row.
Does not verify: that noise is uniform and independent; larger vocabularies, which test_distribution samples.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.workers.kernels.enumeration import Verify, committed, total_variation, world
from tests.workers.kernels.verification import Drafts, verify
from workers.kernels.verify_drafts.definition import BLOCK, STANDARD, STRICT

# Vocabulary, block and tile: everything in one, one token each, and in between.
LAYOUTS = [(2, 2, 1), (3, 2, 2), (4, 2, 1), (4, 4, 2), (4, 4, 4), (3, 1, 1)]
KINDS: list[dict[str, Any]] = [{}, {"point_mass": True}, {"greedy": True}]


def sampled(batch: Drafts) -> NDArray[np.int64]:
    found = verify(batch)
    assert not found["status"].any()
    return found["sampled"].reshape(batch.logits.shape[:2])


@pytest.mark.parametrize("method", [STRICT, STANDARD, BLOCK])
@pytest.mark.parametrize("k", [0, 1, 2])
def test_verification_follows_exactly_the_target_distribution(method: int, k: int) -> None:
    for seed, (vocab_size, block_size, tile_size) in enumerate(LAYOUTS):
        for number, kind in enumerate(KINDS):
            for num_tries in (0, 1, 2)[: 3 if vocab_size < 4 else 2]:
                sizes = {"vocab_size": vocab_size, "block_size": block_size, "tile_size": tile_size}
                at = world(100 * seed + 10 * number + k, method=method, k=k, num_tries=num_tries, **sizes, **kind)
                law, differing = committed(at, sampled)
                assert differing == 0, at
                assert total_variation(at, law) == 0, at


@pytest.mark.parametrize("method", [STRICT, STANDARD, BLOCK])
@pytest.mark.parametrize(("k", "unproposed"), [(0, 2), (1, 1), (2, 1)])
def test_missing_drafts_keep_the_target_distribution(method: int, k: int, unproposed: int) -> None:
    for number, kind in enumerate(KINDS):
        sizes = {"vocab_size": 3, "block_size": 2, "tile_size": 1, "num_tries": 1}
        at = world(50 + number, method=method, k=k, unproposed=unproposed, **sizes, **kind)
        law, differing = committed(at, sampled)
        assert differing == 0, at
        assert total_variation(at, law) == 0, at


def worlds_that_tell(method: int, verify: Verify, num_worlds: int = 6) -> int:
    """Return how many worlds reveal a wrong distribution, or an op that differs within a cell."""
    found = 0
    for seed in range(num_worlds):
        at = world(seed, method=method, vocab_size=3, k=2, num_tries=1, block_size=2, tile_size=1)
        law, differing = committed(at, verify)
        found += total_variation(at, law) > 0 or differing > 0
    return found


def leak(batch: Drafts) -> Drafts:
    """Plant a bug: one in fifty draft tokens is accepted unconditionally."""
    return replace(batch, accept_noise=np.where(batch.accept_noise >= 0.98, np.float32(0), batch.accept_noise))


def keep_every_draft(batch: Drafts) -> Drafts:
    """Plant the bug of vLLM-Ascend PR #13470: the random numbers are 0."""
    return replace(batch, accept_noise=np.zeros_like(batch.accept_noise))


def forget_draft_probabilities(batch: Drafts) -> Drafts:
    """Plant a bug: one request without draft probabilities makes the whole batch deterministic."""
    return replace(batch, point_mass=np.ones_like(batch.point_mass))


def forget_temperature(batch: Drafts) -> Drafts:
    """Plant the bug of vLLM PR #10198: draft tokens are verified with unprocessed logits."""
    return replace(batch, temperature=batch.temperature / 2)


@pytest.mark.parametrize("fault", [leak, keep_every_draft, forget_draft_probabilities, forget_temperature])
@pytest.mark.parametrize("method", [STANDARD, BLOCK])
def test_biased_sampler_is_detected(fault: Any, method: int) -> None:
    # In some worlds the drafter is right with certainty, and no bias is possible.
    assert worlds_that_tell(method, lambda batch: sampled(fault(batch))) >= 3


def test_block_verification_with_single_draft_residual_is_detected() -> None:
    """vLLM-Ascend issue #7807: block acceptance, then recovery as after a single draft token."""

    def mixed(batch: Drafts) -> NDArray[np.int64]:
        together = sampled(batch)
        kept = (together >= 0).sum(axis=1) - 1
        # The number of accepted draft tokens, and the recovered token of single verification.
        noise = np.where(np.arange(2) < kept[:, None], 0.0, 1 - 2**-24).astype(np.float32)
        single = sampled(replace(batch, method=STANDARD, accept_noise=noise))
        same = (single >= 0).sum(axis=1) - 1 == kept
        return np.where(same[:, None], single, together)

    assert worlds_that_tell(BLOCK, mixed, 24) >= 3

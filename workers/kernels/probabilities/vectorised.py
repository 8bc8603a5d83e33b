"""Weights of tokens over blocks and tiles of the vocabulary, as the sampler's ops see them.

A token's weight is exp2((logit - maximum) * scale), where scale = log2(e) / temperature: its probability times a sum.
Whatever is written as a ratio of probabilities is compared as products of weights and sums: nothing is divided.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.kernels.arithmetic.vectorised import arange

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

LOG2E = np.float32(1.4426950408889634)
NEVER = np.float32(-np.inf)


def scale_of(temperature: Floats) -> Floats:
    """Return what logits are multiplied by; 1 where the temperature is 0."""
    random = temperature > 0
    scale: Floats = np.where(random, LOG2E / np.where(random, temperature, np.float32(1)), np.float32(1))
    return scale


def weight(logits: Floats, floor: Any, maximum: Any, scale: Any) -> Floats:
    """Return the weights of logits at or above the floor; 0 for others."""
    exponent = (np.where(logits >= floor, logits, NEVER) - maximum) * scale
    # Exact for integers, which the single-precision function is not everywhere.
    weights: Floats = np.exp2(exponent.astype(np.float64)).astype(np.float32)
    return weights


def lines_of(logits: Floats, columns: int, stride: int, vocab_size: int) -> Floats:
    """Return flat logits as [rows, columns, V]: no rows if there are no logits."""
    num_rows = len(logits) // max(columns * stride, 1)
    return logits.reshape(num_rows, columns, stride)[:, :, :vocab_size]


def pick(masses: Floats, noise: Floats) -> Integers:
    """Return, of each line of masses, the index in which the running sum passes the noise times the total.

    An index without mass is never picked, unless there is no other. Shapes: masses [N, M], noise [N] in [0, 1).
    """
    # Noise is 1 - 2^-24 at most: times that, and rounded, any normal number is less, so the last running sum passes.
    running = np.add.accumulate(masses, axis=1)
    picked: Integers = (running > (noise * running[:, -1])[:, None]).argmax(axis=1)
    return picked


@dataclass(frozen=True, slots=True)
class Sums:
    """Maxima and sums of weights of distributions: of each block, of all, and whether there is a distribution at all.

    Shapes: block_max and block_mass [..., num_blocks], the masses relative to the maximum of all; the others [...].
    """

    block_max: Floats
    block_mass: Floats
    maximum: Floats
    total: Floats
    undefined: NDArray[np.bool_]


def sums(block_max: Floats, block_sum: Floats, scale: Any) -> Sums:
    """Add up the blocks; a block with NaN, or a distribution without any weight, leaves it undefined (total 1)."""
    undefined: NDArray[np.bool_] = np.asarray(np.logical_or.reduce(np.isnan(block_max), axis=-1))
    block_max = np.where(undefined[..., None], NEVER, block_max)
    maximum = np.maximum.reduce(block_max, axis=-1)
    undefined |= maximum == NEVER
    maximum = np.where(undefined, np.float32(0), maximum)
    factor = weight(block_max, NEVER, maximum[..., None], scale)
    mass = block_sum * factor
    return Sums(block_max, mass, maximum, np.where(undefined, np.float32(1), np.add.reduce(mass, axis=-1)), undefined)


@dataclass(frozen=True, slots=True)
class Verification:
    """What is known of a batch's drafts before any noise.

    `usable` counts the drafts of a row before the first that cannot be verified: never proposed, outside the
    vocabulary, or without a distribution on either side. A draft's target and draft probability are to each other as
    `target_odds` and `draft_odds`. Shapes: target sums [B, 1 + K], draft sums and odds [B, K], usable [B].
    """

    target: Sums
    draft: Sums
    usable: Integers
    target_odds: Floats
    draft_odds: Floats
    draft_undefined: NDArray[np.bool_]


def verification(
    logits: Floats,
    draft_logits: Floats,
    draft_slots: Integers,
    floors: Floats,
    temperature: Floats,
    drafts: Integers,
    num_drafts: Integers,
    point_mass: Integers,
    block_max: Floats,
    block_sum: Floats,
    vocab_size: int,
) -> Verification:
    """Put together what the ops behind `sampler_stats` begin with.

    Shapes: logits [B, 1 + K, V], draft_logits [slots, K, V], floors [B, 1 + K], drafts [B, K]; block_max and
    block_sum as sampler_stats writes them, flat; the others [B].
    """
    num_rows, width, _ = logits.shape
    k, random = width - 1, temperature > 0
    num_blocks = len(block_max) // max(num_rows * (width + k), 1)
    split = num_rows * width * num_blocks
    scale = scale_of(temperature)[:, None]
    column = arange(width)
    # What sampler_stats has not written is nobody's to read.
    written = (column <= num_drafts[:, None])[:, :, None]
    target = sums(
        np.where(written, block_max[:split].reshape(num_rows, width, num_blocks), NEVER),
        np.where(
            written & random[:, None, None], block_sum[:split].reshape(num_rows, width, num_blocks), np.float32(0)
        ),
        scale[:, :, None],
    )
    has_logits = random & (point_mass == 0)
    written = ((column[:k] < num_drafts[:, None]) & (has_logits & (draft_slots >= 0))[:, None])[:, :, None]
    draft = sums(
        np.where(written, block_max[split:].reshape(num_rows, k, num_blocks), NEVER),
        np.where(written, block_sum[split:].reshape(num_rows, k, num_blocks), np.float32(0)),
        scale[:, :, None],
    )
    known = (drafts >= 0) & (drafts < vocab_size) & (column[:k] < num_drafts[:, None])
    draft_undefined = known & draft.undefined & has_logits[:, None]
    fits = known & ~target.undefined[:, :k] & ~draft_undefined
    usable = np.where(fits, k, column[:k]).min(axis=1, initial=k)
    at = np.where(fits, drafts, 0)
    chosen = np.where(fits, logits[arange(num_rows)[:, None], column[:k], at], NEVER)
    target_weight = weight(chosen, floors[:, :k], target.maximum[:, :k], scale)
    is_read = has_logits[:, None] & fits
    if is_read.any():
        slots = np.where(is_read, draft_slots[:, None], 0)
        proposed = np.where(is_read, draft_logits[slots, column[:k], at], NEVER)
        draft_weight = np.where(is_read, weight(proposed, NEVER, draft.maximum, scale), np.float32(1))
    else:
        draft_weight = np.ones((num_rows, k), dtype=np.float32)
    return Verification(
        target,
        draft,
        usable,
        (target_weight * draft.total).astype(np.float32),
        (draft_weight * target.total[:, :k]).astype(np.float32),
        draft_undefined,
    )


def block_odds(verified: Verification) -> Floats:
    """Return, after each number of drafts, the weight min(1, ...) of block verification; it is 1 after none.

    Shape: [B, 1 + K]. Source: arXiv 2403.10444, algorithm 2; the quotient of a draft without draft probability is the
    largest float, if the target knows it.
    """
    target, draft = verified.target_odds, verified.draft_odds
    num_rows, k = target.shape
    odds = np.ones((num_rows, 1 + k), dtype=np.float32)
    most = np.finfo(np.float32).max
    for i in range(k):
        product = odds[:, i] * target[:, i]
        quotient = product / np.where(draft[:, i] > 0, draft[:, i], np.float32(1))
        quotient = np.where(draft[:, i] > 0, quotient, np.where(product > 0, most, np.float32(0)))
        odds[:, 1 + i] = np.minimum(quotient, np.float32(1))
    return odds

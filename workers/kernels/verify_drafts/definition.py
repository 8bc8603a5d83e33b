"""Rejection sampler: which draft tokens are accepted, and the token that follows them."""

from typing import Annotated

import numpy as np

from workers.kernels.argument import In, Memory, Out, arguments
from workers.kernels.probabilities.definition import (
    NEVER,
    ONE,
    LogitsLine,
    both_distributions,
    is_defined,
    joint_ratios,
    num_blocks_of,
    num_usable,
    ordered_sum,
    pick,
    proposal_of,
    residual_of,
    scaled_probabilities,
    target_blocks,
    target_of,
    weight,
)
from workers.kernels.probabilities.shared_arguments import VerifiedDrafts
from workers.kernels.sentinels import NO_TOKEN

# A draft token is kept if it equals the token that the noise of its position samples from the target, so output tokens
# do not depend on draft tokens.
STRICT = 0
# A draft token is kept with probability min(1, p / q). Source: arXiv 2211.17192.
STANDARD = 1
# A draft token is kept with a given probability; not lossless.
SYNTHETIC = 2
# Block verification: draft tokens are kept jointly. Source: arXiv 2403.10444.
BLOCK = 3
# Bits of a row's status.
DRAFT_OUTSIDE_VOCABULARY = 1
TARGET_UNDEFINED = 2
DRAFT_UNDEFINED = 4


@arguments
class VerifyDrafts(VerifiedDrafts):
    """Emit each row's accepted draft tokens, then the recovered or bonus token.

    - Rows of temperature 0 keep a draft token if it is the target's best token, lowest index first.
    - A draft token that was never proposed (NO_DRAFT), is outside the vocabulary, or lacks a draft distribution ends
      the draft tokens of its row; the next token is then sampled from the target. The last two cases set a status bit.
    - If the target's distribution is undefined (NaN, inf or only -inf; a status bit), the row ends without a token.
    - Valid tokens are a contiguous prefix, followed by NO_TOKEN. Padding rows, and rows marked invalid, emit nothing.
    - A token is sampled from a distribution in three steps, block, tile and token, each with its own noise.
    - The residual of a rejected certain draft token is every other token.
    - A token of the residual max(p - q, 0) is a token sampled from p that is kept with probability max(p - q, 0) / p: a
      few tries are made, and if all fail the residual is summed.
    """

    num_scheduled: Annotated[Memory, In("int64", "B")]
    invalid: Annotated[Memory, In("int64", "B")]
    rates: Annotated[Memory, In("float32", "K")]
    block_best: Annotated[Memory, In("int64", "B * (1 + K) * num_vocab_blocks")]
    tile_sum: Annotated[Memory, In("float32", "B * (1 + K) * num_vocab_blocks * num_tiles")]
    residual: Annotated[Memory, In("float32", "B * K * num_vocab_blocks")]
    accept_noise: Annotated[Memory, In("float32", "B * K")]
    select_noise: Annotated[Memory, In("float32", "B * (1 + K) * (1 + num_tries) * 4")]
    sampled: Annotated[Memory, Out("int64", "B * (1 + K)")]
    status: Annotated[Memory, Out("int64", "B", of=("sampler_status",))]
    method: int
    num_tries: int
    tile_size: int


def verify_drafts(a: VerifyDrafts) -> None:
    """Emit each row's accepted draft tokens, then the recovered or bonus token."""
    width = 1 + a.num_speculative_tokens
    for row in range(len(a.num_drafts)):
        for column in range(width):
            a.sampled[row * width + column] = NO_TOKEN
        a.status[row] = 0
        if a.num_scheduled[row] > 0 and a.invalid[row] <= 0:
            accepted = _accepted(a, row)
            for column in range(accepted):
                a.sampled[row * width + column] = _draft(a, row, column)
            if is_defined(a.block_max[target_blocks(a, row, accepted)]):
                a.sampled[row * width + accepted] = _token_after_kept(a, row, accepted)
            a.status[row] = _status(a, row, accepted)


def _draft(a: VerifyDrafts, row: int, column: int) -> int:
    return int(a.drafts[row * a.num_speculative_tokens + column])


def _status(a: VerifyDrafts, row: int, accepted: int) -> int:
    """Return a row's error bits: draft token invalid, target or draft logits undefined.

    They depend on its draft tokens, their distributions, and the target after the kept draft tokens.
    """
    status = 0
    for column in range(a.num_drafts[row]):
        draft = _draft(a, row, column)
        if draft < NO_TOKEN or draft >= a.vocab_size:
            status |= DRAFT_OUTSIDE_VOCABULARY
        elif draft >= 0 and a.temperature[row] > 0 and proposal_of(a, row, column) is None:
            status |= DRAFT_UNDEFINED
    if not is_defined(a.block_max[target_blocks(a, row, accepted)]):
        status |= TARGET_UNDEFINED
    return status


def _accepted(a: VerifyDrafts, row: int) -> int:
    """Return the number of draft tokens of a row that are accepted."""
    usable = num_usable(a, row)
    if a.method == BLOCK and a.temperature[row] > 0:
        return _accepted_together(a, row, usable)
    for column in range(usable):
        if not _is_kept(a, row, column):
            return column
    return usable


def _is_kept(a: VerifyDrafts, row: int, column: int) -> bool:
    """Return whether a draft token is accepted, provided that all drafts before it are."""
    draft, noise = _draft(a, row, column), a.accept_noise[row * a.num_speculative_tokens + column]
    if a.method == SYNTHETIC:
        return bool(noise < a.rates[column])
    if a.temperature[row] == 0:
        return draft == _best(a, row, column)
    if a.method == STRICT:
        return draft == _selected(a, row, column, 0)
    p, q = scaled_probabilities(*both_distributions(a, row, column), draft)
    return bool(noise * q < p)


def _accepted_together(a: VerifyDrafts, row: int, usable: int) -> int:
    """Return how many draft tokens block verification accepts."""
    k, num_blocks, joint_ratio = a.num_speculative_tokens, num_blocks_of(a), joint_ratios(a, row, usable)
    accepted = 0
    for count in range(1, 1 + usable):
        noise = a.accept_noise[row * k + count - 1]
        if count == usable:
            is_kept = noise < joint_ratio[count]
        else:
            first = (row * k + count) * num_blocks
            left = ordered_sum(a.residual[first : first + num_blocks])
            is_kept = noise * (left + ONE - joint_ratio[count]) < left
        if is_kept:
            accepted = count
    return accepted


def _token_after_kept(a: VerifyDrafts, row: int, accepted: int) -> int:
    """Return the token after the accepted draft tokens: a recovered or a bonus token.

    Recovered if the next draft token was rejected.
    """
    if a.temperature[row] == 0:
        return _best(a, row, accepted)
    if a.method in (STRICT, SYNTHETIC) or accepted == num_usable(a, row):
        return _selected(a, row, accepted, 0)
    if a.point_mass[row] != 0:
        # The residual is every other token.
        return _selected(a, row, accepted, 0, excluded=_draft(a, row, accepted))
    return _recovered(a, row, accepted)


def _best(a: VerifyDrafts, row: int, column: int) -> int:
    """Return the token with the largest target logit; the lowest id on a tie."""
    blocks = target_blocks(a, row, column)
    maxima, best = list(a.block_max[blocks]), list(a.block_best[blocks])
    return int(best[maxima.index(max(maxima))])


def _noise(a: VerifyDrafts, row: int, column: int, index: int) -> list[np.float32]:
    """Return the random numbers of one attempt: for block, tile, token and acceptance."""
    line = row * (1 + a.num_speculative_tokens) + column
    first = (line * (1 + a.num_tries) + index) * 4
    return list(a.select_noise[first : first + 4])


def _selected(a: VerifyDrafts, row: int, column: int, index: int, excluded: int | None = None) -> int:
    """Sample a token from the target with the random numbers of one attempt.

    The excluded token is returned only if there is no other.
    """
    target, noise = target_of(a, row, column), _noise(a, row, column, index)
    assert target is not None
    masses = []
    for block in range(num_blocks_of(a)):
        masses.append(_block_mass(a, row, column, target, block, excluded))
    if excluded is not None and ordered_sum(masses) == 0:
        return excluded
    block = pick(masses, noise[0])
    tile = pick(_tile_masses(a, row, column, target, block, excluded), noise[1])
    first = block * a.block_size + tile * a.tile_size
    return first + pick(_token_masses(a, target, block, tile, excluded), noise[2])


def _block_mass(
    a: VerifyDrafts, row: int, column: int, target: LogitsLine, block: int, excluded: int | None
) -> np.float32:
    """Return the mass of a vocabulary block relative to the row's maximum.

    It is added up again if the block contains the excluded token.
    """
    if excluded is None or excluded // a.block_size != block:
        return target.block_mass[block]
    factor = weight(target.block_max[block], NEVER, target.maximum, target.scale)
    return ordered_sum(_tile_masses(a, row, column, target, block, excluded)) * factor


def _tile_masses(
    a: VerifyDrafts, row: int, column: int, target: LogitsLine, block: int, excluded: int | None
) -> list[np.float32]:
    """Return the masses of a vocabulary block's tiles relative to the block's maximum.

    The excluded token's tile is added up again.
    """
    num_tiles = a.block_size // a.tile_size
    first = ((row * (1 + a.num_speculative_tokens) + column) * num_blocks_of(a) + block) * num_tiles
    masses = list(a.tile_sum[first : first + num_tiles])
    if excluded is not None and excluded // a.block_size == block:
        tile = excluded % a.block_size // a.tile_size
        masses[tile] = ordered_sum(_token_masses(a, target, block, tile, excluded))
    return masses


def _token_masses(a: VerifyDrafts, target: LogitsLine, block: int, tile: int, excluded: int | None) -> list[np.float32]:
    """Return the weights of a tile's tokens relative to the maximum of its block.

    0 for the excluded token.
    """
    first = block * a.block_size + tile * a.tile_size
    masses = []
    for token in range(first, min(first + a.tile_size, a.vocab_size)):
        logit = NEVER if token == excluded else target.logits[token]
        masses.append(weight(logit, target.floor, target.block_max[block], target.scale))
    return masses


def _recovered(a: VerifyDrafts, row: int, column: int) -> int:
    """Sample a token from the residual: by a few rejection attempts, else from its sum."""
    target, proposal = both_distributions(a, row, column)
    joint_ratio = joint_ratios(a, row, num_usable(a, row))[column] if a.method == BLOCK else ONE
    for index in range(a.num_tries):
        token = _selected(a, row, column, index)
        p, q = scaled_probabilities(target, proposal, token, joint_ratio)
        if _noise(a, row, column, index)[3] * p < p - q:
            return token
    left = [residual_of(target, proposal, joint_ratio, token) for token in range(a.vocab_size)]
    # Without any residual, the draft token was rejected by rounding alone.
    return _picked(a, row, column, left) if any(each > 0 for each in left) else _selected(a, row, column, 0)


def _picked(a: VerifyDrafts, row: int, column: int, left: list[np.float32]) -> int:
    """Sample a token by residual: first its tile, then its offset in the tile, then its block.

    First its tile over all blocks, then its place in the tile, then its block.
    """
    noise = _noise(a, row, column, a.num_tries)
    tiles = []
    for tile in range(a.block_size // a.tile_size):
        places = range(tile * a.tile_size, (tile + 1) * a.tile_size)
        tiles.append([ordered_sum(left[place :: a.block_size]) for place in places])
    tile = pick([ordered_sum(masses) for masses in tiles], noise[1])
    place = tile * a.tile_size + pick(tiles[tile], noise[2])
    return pick(left[place :: a.block_size], noise[0]) * a.block_size + place

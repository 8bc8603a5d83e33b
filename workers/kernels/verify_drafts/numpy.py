"""Rejection sampler: which draft tokens are accepted, and the token that follows them."""

from collections.abc import Sequence

import numpy as np

from workers.kernels.probabilities.numpy import LEAST, NEVER, Floats, VerifiedRow, above, pick, weight, weight_of
from workers.kernels.sentinels import NO_DRAFT, NO_TOKEN
from workers.kernels.verify_drafts.definition import (
    BLOCK,
    DRAFT_OUTSIDE_VOCABULARY,
    DRAFT_UNDEFINED,
    STRICT,
    SYNTHETIC,
    TARGET_UNDEFINED,
    VerifyDrafts,
)

ONE = np.float32(1)


def verify_drafts(a: VerifyDrafts) -> None:
    a.sampled.fill(NO_TOKEN)
    a.status.fill(0)
    for index, (num_scheduled, invalid) in enumerate(zip(a.num_scheduled.tolist(), a.invalid.tolist(), strict=True)):
        if num_scheduled <= 0 or invalid > 0:
            continue
        row = VerifiedRow(a, index)
        is_own = a.method != SYNTHETIC and (a.method == STRICT or not row.is_random)
        tokens, has_target = _target_tokens(a, row) if is_own else _emitted(a, row)
        a.sampled[row.first_line : row.first_line + len(tokens)] = tokens
        status = 0 if has_target else TARGET_UNDEFINED
        if any(draft < NO_DRAFT or draft >= a.vocab_size for draft in row.drafts):
            status |= DRAFT_OUTSIDE_VOCABULARY
        if row.lacks:
            status |= DRAFT_UNDEFINED
        if status:
            a.status[index] = status


def _target_tokens(a: VerifyDrafts, row: VerifiedRow) -> tuple[list[int], bool]:
    """Return the target's tokens for a row, up to the first that differs from the draft token.

    Also return whether the last token is defined.
    """
    tokens: list[int] = []
    for draft in (*row.drafts[: row.usable], NO_DRAFT):
        if not row.is_defined[len(tokens)]:
            return tokens, False
        tokens.append(_token(a, row, len(tokens)))
        if tokens[-1] != draft:
            break
    return tokens, True


def _emitted(a: VerifyDrafts, row: VerifiedRow) -> tuple[list[int], bool]:
    """Return the accepted draft tokens of a row and the token after them.

    Also return whether that token is defined.
    """
    joint_ratio = row.joint_ratios() if a.method == BLOCK else [ONE] * (1 + row.usable)
    noise = a.accept_noise[row.first_draft : row.first_draft + row.usable]
    accepted = _accepted_together(a, row, joint_ratio, noise) if a.method == BLOCK else _accepted(a, row, noise)
    tokens = row.drafts[:accepted]
    if not row.is_defined[accepted]:
        return tokens, False
    if a.method == SYNTHETIC or accepted == row.usable:
        return [*tokens, _token(a, row, accepted)], True
    return [*tokens, _recovered(a, row, accepted, joint_ratio[accepted])], True


def _accepted(a: VerifyDrafts, row: VerifiedRow, noise: Floats) -> int:
    """Return how many draft tokens precede the first that is rejected by its random number."""
    for column in range(row.usable):
        if a.method == SYNTHETIC:
            is_kept = noise[column] < a.rates[column]
        else:
            p, q = row.scaled_probabilities(column, row.drafts[column], ONE)
            is_kept = noise[column] * q < p
        if not is_kept:
            return column
    return row.usable


def _accepted_together(a: VerifyDrafts, row: VerifiedRow, joint_ratio: Sequence[np.float32], noise: Floats) -> int:
    """Return how many draft tokens block verification accepts."""
    for count in range(row.usable, 0, -1):
        if count == row.usable:
            is_kept = noise[count - 1] < joint_ratio[count]
        else:
            first = (row.first_draft + count) * row.num_blocks
            left = np.add.reduce(a.residual[first : first + row.num_blocks])
            is_kept = noise[count - 1] * (left + ONE - joint_ratio[count]) < left
        if is_kept:
            return count
    return 0


def _recovered(a: VerifyDrafts, row: VerifiedRow, column: int, joint_ratio: np.float32) -> int:
    """Sample a token from the residual max(joint_ratio * p - q, 0) of a rejected draft token."""
    if not row.is_drawn:
        # The residual of a certain draft token is every other token.
        return _selected(a, row, column, 0, row.drafts[column])
    for index in range(a.num_tries):
        token = _selected(a, row, column, index)
        p, q = row.scaled_probabilities(column, token, joint_ratio)
        if _noise(a, row, column, index)[3] * p < p - q:
            return token
    masses, _ = row.residual_of(column, joint_ratio)
    # Without a residual, the draft token was rejected by rounding alone.
    return _picked(a, masses, _noise(a, row, column, a.num_tries)) if masses.any() else _selected(a, row, column, 0)


def _token(a: VerifyDrafts, row: VerifiedRow, column: int) -> int:
    """Return the target's token in a column: its argmax, or a token sampled with its noise."""
    if row.is_random:
        return _selected(a, row, column, 0)
    first = (row.first_line + column) * row.num_blocks
    return int(a.block_best[first + a.block_max[first : first + row.num_blocks].argmax()])


def _noise(a: VerifyDrafts, row: VerifiedRow, column: int, index: int) -> Floats:
    """Return the random numbers of one attempt: for block, tile, token and acceptance."""
    first = ((row.first_line + column) * (1 + a.num_tries) + index) * 4
    noise: Floats = a.select_noise[first : first + 4]
    return noise


def _selected(a: VerifyDrafts, row: VerifiedRow, column: int, index: int, excluded: int = NO_TOKEN) -> int:
    """Sample a token from the target with the random numbers of one attempt.

    The excluded token is returned only if there is no other.
    """
    num_tiles, noise = a.block_size // a.tile_size, _noise(a, row, column, index)
    if row.num_blocks == num_tiles == 1:
        weights = _weights(a, row, column, 0, 0, excluded)
        return pick(weights, noise[2]) if excluded == NO_TOKEN or weights.any() else excluded
    first, block, tile = (row.first_line + column) * row.num_blocks, 0, 0
    tiles = a.tile_sum[first * num_tiles : (first + row.num_blocks) * num_tiles].reshape(row.num_blocks, num_tiles)
    block_mass = row.target(column).block_mass
    if excluded != NO_TOKEN:
        tiles, block_mass = _without(a, row, column, excluded, tiles)
        if not np.add.reduce(block_mass) > 0:
            return excluded
    if row.num_blocks > 1:
        block = pick(block_mass, noise[0])
    if num_tiles > 1:
        tile = pick(tiles[block], noise[1])
    token = pick(_weights(a, row, column, block, tile, excluded), noise[2])
    return block * a.block_size + tile * a.tile_size + token


def _without(a: VerifyDrafts, row: VerifiedRow, column: int, excluded: int, tiles: Floats) -> tuple[Floats, Floats]:
    """Return tile sums and block masses without the excluded token.

    Its tile, then its block, are added up again.
    """
    target, tiles = row.target(column), tiles.copy()
    block, tile = excluded // a.block_size, excluded % a.block_size // a.tile_size
    # The last tile may extend past the vocabulary; it is added up as a whole tile.
    weights = np.zeros(a.tile_size, dtype=np.float32)
    found = _weights(a, row, column, block, tile, excluded)
    weights[: len(found)] = found
    tiles[block, tile] = np.add.reduce(weights)
    maximum = a.block_max[(row.first_line + column) * row.num_blocks + block]
    block_mass = target.block_mass.copy()
    block_mass[block] = np.add.reduce(tiles[block]) * weight_of(maximum, target.maximum, row.scale)
    return tiles, block_mass


def _weights(a: VerifyDrafts, row: VerifiedRow, column: int, block: int, tile: int, excluded: int) -> Floats:
    """Return the weights of a tile's tokens relative to the maximum of its block.

    0 for the excluded token.
    """
    line, start = row.first_line + column, block * a.block_size + tile * a.tile_size
    first, floor = line * a.logits_stride, a.floors[line]
    logits = a.logits[first + start : first + min(start + a.tile_size, a.vocab_size)]
    if floor > -np.inf:
        logits = above(logits, floor)
    if start <= excluded < start + a.tile_size:
        logits = logits.copy()
        logits[excluded - start] = NEVER
    # Without the excluded token, a block may have no weight.
    return weight(logits, max(a.block_max[line * row.num_blocks + block], LEAST), row.scale)


def _picked(a: VerifyDrafts, masses: Floats, noise: Floats) -> int:
    """Sample a token by these masses, with the random numbers of one attempt.

    First its tile over all blocks, then its place in the tile, then its block.
    """
    blocks = masses.reshape(-1, a.block_size // a.tile_size, a.tile_size)
    tiles = np.add.reduce(blocks, axis=0)
    tile = pick(np.add.reduce(tiles, axis=1), noise[1])
    place = pick(tiles[tile], noise[2])
    return pick(blocks[:, tile, place], noise[0]) * a.block_size + tile * a.tile_size + place

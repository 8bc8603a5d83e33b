"""Decide which drafts a step keeps and which token follows them, greedily or by chance, row by row."""

import numpy as np

from workers.kernels.arithmetic.vectorised import ZERO, arange, below, integer, multiples, word, words
from workers.kernels.probabilities.vectorised import (
    LEAST,
    NEVER,
    NONE,
    ONE,
    Batch,
    Flags,
    Floats,
    Integers,
    pick,
    weight,
)
from workers.kernels.sentinels import NO_DRAFT, NO_TOKEN
from workers.kernels.verify_drafts.arguments import (
    BLOCK,
    DRAFT_OUTSIDE_VOCABULARY,
    DRAFT_UNDEFINED,
    STANDARD,
    STRICT,
    SYNTHETIC,
    TARGET_UNDEFINED,
    VerifyDrafts,
)


def verify_drafts(a: VerifyDrafts) -> None:
    """Emit the drafts of each row that are kept, and one token more: recovered, or bonus."""
    k, num_rows, batch = a.num_speculative_tokens, len(a.num_drafts), Batch(a)
    odds = batch.block_odds() if a.method == BLOCK else np.ones((num_rows, 1 + k), dtype=np.float32)
    tokens = _tokens_of_lines(a, batch)
    accepted = _accepted(a, batch, tokens, odds)
    lines = multiples(num_rows, 1 + k) + accepted
    has_target = batch.is_defined.take(lines)
    if a.method != STRICT:
        (rows,) = (batch.random & has_target).nonzero()
        if len(rows):
            tokens[lines[rows]] = _behind(a, batch, rows, accepted[rows], odds)

    drafts, sampled = a.drafts.reshape(num_rows, k), a.sampled.reshape(num_rows, 1 + k)
    sampled.fill(NO_TOKEN)
    np.copyto(sampled[:, :k], drafts, where=below(1 + k).take(accepted, axis=0)[:, :k])
    a.sampled[lines[has_target]] = tokens[lines[has_target]]
    is_outside: Flags = (words(a.drafts) >= word(a.vocab_size)).reshape(num_rows, k) & (drafts != integer(NO_DRAFT))
    num_drafts: Integers = a.num_drafts
    is_outside &= below(1 + k).take(num_drafts, axis=0)[:, :k]
    told = is_outside.any(axis=1) * DRAFT_OUTSIDE_VOCABULARY + batch.lacks * DRAFT_UNDEFINED
    told[~has_target] += TARGET_UNDEFINED
    is_idle = (a.num_scheduled <= ZERO) | (a.invalid > ZERO)
    sampled[is_idle] = NO_TOKEN
    told[is_idle] = 0
    a.status[:] = told


def _tokens_of_lines(a: VerifyDrafts, batch: Batch) -> Integers:
    """Return the tokens of lines, as far as no draft matters: the best of greedy rows, those that strict ones draw."""
    num_blocks, width = batch.num_blocks, 1 + a.num_speculative_tokens
    of_block = batch.block_max.argmax(axis=1)
    tokens: Integers = a.block_best[multiples(len(of_block), num_blocks) + of_block]
    if a.method == STRICT:
        is_read = below(1 + width)[1:].take(batch.usable, axis=0) & batch.random[:, None]
        (lines,) = (is_read[:, :width].ravel() & batch.is_defined).nonzero()
        if len(lines):
            tokens[lines] = _selected(a, batch, lines, 0)
    return tokens


def _accepted(a: VerifyDrafts, batch: Batch, tokens: Integers, odds: Floats) -> Integers:
    """Return how many drafts of each row are kept."""
    k, num_rows = a.num_speculative_tokens, len(a.num_drafts)
    is_kept, noise = below(1 + k).take(batch.usable, axis=0), a.accept_noise.reshape(num_rows, k)
    if a.method == SYNTHETIC:
        is_kept[:, :k] &= noise < a.rates
    else:
        agrees = a.drafts.reshape(num_rows, k) == tokens.reshape(num_rows, 1 + k)[:, :k]
        if a.method == STANDARD:
            rows, columns = (is_kept & batch.random[:, None]).nonzero()
            p, q = batch.odds_of(rows, columns, a.drafts.take(rows * integer(k) + columns))
            agrees[rows, columns] = noise[rows, columns] * q < p
        is_kept[:, :k] &= agrees
    accepted: Integers = is_kept.argmin(axis=1)
    if a.method == BLOCK:
        residual = a.residual.reshape(num_rows, k, batch.num_blocks)
        for row in batch.random.nonzero()[0]:
            accepted[row] = _kept_together(int(batch.usable[row]), odds[row], residual[row], noise[row])
    return accepted


def _kept_together(usable: int, odds: Floats, residual: Floats, noise: Floats) -> int:
    """Return the largest number of a row's usable drafts that their noise keeps together."""
    for count in range(usable, 0, -1):
        if count == usable:
            is_kept = noise[count - 1] < odds[count]
        else:
            left = np.add.reduce(residual[count])
            is_kept = noise[count - 1] * (left + ONE - odds[count]) < left
        if is_kept:
            return count
    return 0


def _behind(a: VerifyDrafts, batch: Batch, rows: Integers, columns: Integers, odds: Floats) -> Integers:
    """Return the token of a column of each row: from what a draft left of the target, where one was rejected there."""
    k = a.num_speculative_tokens
    lines, is_drawn = rows * integer(1 + k) + columns, batch.drawn.take(rows)
    is_rejected = columns < batch.usable.take(rows)
    if a.method == SYNTHETIC or not np.count_nonzero(is_rejected):
        return _selected(a, batch, lines, 0)
    (left,) = (is_rejected & is_drawn).nonzero()
    if len(left) < np.count_nonzero(is_rejected):
        # Of a draft that is certain, what is left of the target is every other token.
        drafts = a.drafts.take(rows * integer(k) + columns, mode="clip")
        tokens = _selected(a, batch, lines, 0, np.where(is_rejected & ~is_drawn, drafts, integer(NO_TOKEN)))
    else:
        tokens = _selected(a, batch, lines, 0)
    noise = a.select_noise.reshape(-1, 1 + a.num_tries, 4)
    for index in range(a.num_tries):
        if not len(left):
            break
        tried = _selected(a, batch, lines[left], index)
        p, q = batch.odds_of(rows[left], columns[left], tried, odds[rows[left], columns[left]])
        is_taken = noise[lines[left], index, 3] * p < p - q
        tokens[left[is_taken]] = tried[is_taken]
        left = left[~is_taken]
    for each in left:
        row, column = int(rows[each]), int(columns[each])
        masses, _ = batch.left_of(row, column, odds[row, column])
        # Without any the draft was rejected by rounding alone.
        if masses.any():
            tokens[each] = _picked(a, masses, noise[lines[each], -1])
    return tokens


def _selected(a: VerifyDrafts, batch: Batch, lines: Integers, index: int, excluded: Integers | None = None) -> Integers:
    """Return a token from the target's distribution on each line, by the noise of a try.

    One token of each may be excluded (NO_TOKEN: none); it is selected if there is no other.
    """
    num_blocks, num_tiles = batch.num_blocks, a.block_size // a.tile_size
    rows = lines // integer(1 + a.num_speculative_tokens)
    noise = a.select_noise.reshape(-1, 4).take(lines * integer(1 + a.num_tries) + integer(index), axis=0)
    target, tiles = batch.target(lines, rows), a.tile_sum.reshape(-1, num_blocks, num_tiles).take(lines, axis=0)
    if excluded is not None:
        # The excluded token's tile is added up without it, then its block.
        (short,) = (excluded > integer(NO_TOKEN)).nonzero()
        at, block, tile = lines[short], excluded[short] // a.block_size, excluded[short] % a.block_size // a.tile_size
        first = block * a.block_size + tile * a.tile_size
        tiles[short, block, tile] = np.add.reduce(_weights(a, batch, at, first, excluded[short]), axis=1)
        factor = weight(batch.block_max[at, block], target.maximum[short], batch.scale.take(rows[short]))
        target.block_mass[short, block] = np.add.reduce(tiles[short, block], axis=1) * factor
    if num_blocks * num_tiles > 1:
        block = pick(target.block_mass, noise[:, 0])
        tile = pick(tiles[arange(len(lines)), block], noise[:, 1])
        first = block * integer(a.block_size) + tile * integer(a.tile_size)
    else:
        first = np.zeros_like(lines)
    tokens = first + pick(_weights(a, batch, lines, first, excluded), noise[:, 2])
    if excluded is None:
        return tokens
    return np.where(np.add.reduce(target.block_mass, axis=1) > NONE, tokens, excluded)


def _weights(a: VerifyDrafts, batch: Batch, lines: Integers, first: Integers, excluded: Integers | None) -> Floats:
    """Return the weights of the tiles of lines that begin with these tokens, [N, tile_size], as of their blocks."""
    tokens = first[:, None] + arange(a.tile_size)
    # The last tile reaches past the vocabulary, and past the last line.
    logits = a.logits.take((lines * integer(a.logits_stride))[:, None] + tokens, mode="clip")
    is_token = (tokens < integer(a.vocab_size)) & (logits >= a.floors.take(lines)[:, None])
    if excluded is not None:
        is_token &= tokens != excluded[:, None]
    maximum = batch.block_max[lines, first // integer(a.block_size)]
    scale = batch.scale.take(lines // integer(1 + a.num_speculative_tokens))
    # A block without weight is picked only where there is none at all.
    return weight(np.where(is_token, logits, NEVER), np.maximum(maximum, LEAST)[:, None], scale[:, None])


def _picked(a: VerifyDrafts, masses: Floats, noise: Floats) -> int:
    """Return a token by masses and the noise of a try: its tile in all blocks, its place in that, then its block."""
    blocks = masses.reshape(-1, a.block_size // a.tile_size, a.tile_size)
    tiles = np.add.reduce(blocks, axis=0)
    (tile,) = pick(np.add.reduce(tiles, axis=1)[None], noise[1:2])
    (place,) = pick(tiles[tile][None], noise[2:3])
    (block,) = pick(blocks[:, tile, place][None], noise[:1])
    return int(block * a.block_size + tile * a.tile_size + place)

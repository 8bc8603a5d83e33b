"""Decide which drafts a step keeps and which token follows them, greedily or by chance, row by row."""

import numpy as np
from numpy.typing import NDArray

from workers.kernels.arithmetic.vectorised import arange, multiples
from workers.kernels.probabilities.vectorised import (
    NEVER,
    Floats,
    Integers,
    Verification,
    block_odds,
    lines_of,
    pick,
    scale_of,
    verification,
    weight,
)
from workers.kernels.sentinels import NO_TOKEN
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
    k, width, num_rows = a.num_speculative_tokens, 1 + a.num_speculative_tokens, len(a.num_drafts)
    batch = _Batch(
        lines_of(a.logits, width, a.logits_stride, a.vocab_size), lines_of(a.draft_logits, k, a.draft_stride,
        a.vocab_size),
        a.draft_slots, a.floors.reshape(num_rows, width), a.temperature, a.drafts.reshape(num_rows, k),
        a.num_drafts, a.point_mass,
        a.block_max, a.block_sum, a.tile_sum, a.select_noise.reshape(num_rows, width, 1 + a.num_tries, 4),
        a.block_size, a.tile_size,
    )  # fmt: skip
    known, proposed = batch.known, batch.drafts
    noise, greedy = a.accept_noise.reshape(num_rows, k), a.temperature == 0
    odds = np.ones((num_rows, width), dtype=np.float32)
    own = np.zeros((num_rows, width), dtype=np.int64)
    best = batch.best(a.block_best)
    if a.method == STRICT:
        for column in range(width):
            own[:, column] = batch.select(np.full(num_rows, column), 0, np.full(num_rows, NO_TOKEN))
        kept = proposed == own[:, :k]
    elif a.method == SYNTHETIC:
        kept = noise < a.rates
    else:
        kept = noise * known.draft_odds < known.target_odds
    if a.method != SYNTHETIC:
        kept = np.where(greedy[:, None], proposed == best[:, :k], kept)
    accepted = _leading(kept, known.usable)
    if a.method == BLOCK:
        odds = block_odds(known)
        together = _block_accepted(
            odds, a.residual.reshape(num_rows, k, -(-a.vocab_size // a.block_size)), noise, known.usable
        )
        accepted = np.where(greedy, accepted, together)

    rows = arange(num_rows)
    rejected = (accepted < known.usable) & ~greedy & (a.method in (STANDARD, BLOCK))
    last = np.where(greedy, best[rows, accepted], own[rows, accepted])
    if a.method != STRICT:
        chance = batch.recover(accepted, rejected, odds[rows, accepted], a.num_tries)
        last = np.where(greedy, last, chance)

    undefined = known.target.undefined[rows, accepted]
    columns = arange(width)
    tokens = np.concatenate([proposed, np.zeros((num_rows, 1), dtype=np.int64)], axis=1)
    tokens = np.where(columns < accepted[:, None], tokens, last[:, None])
    emitted = (columns < accepted[:, None]) | ((columns == accepted[:, None]) & ~undefined[:, None])
    sampling = (a.num_scheduled > 0) & (a.invalid <= 0)
    a.sampled.reshape(num_rows, width)[:] = np.where(emitted & sampling[:, None], tokens, NO_TOKEN)
    outside = (proposed < NO_TOKEN) | (proposed >= a.vocab_size)
    outside &= columns[:k] < a.num_drafts[:, None]
    told = DRAFT_OUTSIDE_VOCABULARY * outside.any(axis=1) + TARGET_UNDEFINED * undefined
    told += DRAFT_UNDEFINED * known.draft_undefined.any(axis=1)
    a.status[:] = np.where(sampling, told, 0)


def _leading(kept: NDArray[np.bool_], usable: Integers) -> Integers:
    """Return how many usable drafts there are before the first that is not kept."""
    k = kept.shape[1]
    column = arange(k)
    first: Integers = np.where(kept & (column < usable[:, None]), k, column).min(axis=1, initial=k)
    return first


def _block_accepted(odds: Floats, residual: Floats, noise: Floats, usable: Integers) -> Integers:
    """Return the largest number of drafts that their noise keeps together."""
    accepted = np.zeros(len(usable), dtype=np.int64)
    for i in range(1, odds.shape[1]):
        left = np.where(i < usable, residual[:, min(i, residual.shape[1] - 1)].sum(axis=1), 0)
        of_some = noise[:, i - 1] * (left + 1 - odds[:, i]) < left
        kept = np.where(i < usable, of_some, noise[:, i - 1] < odds[:, i])
        accepted = np.where(kept & (i <= usable), i, accepted)
    return accepted


class _Batch:
    """The arrays of a call, and how a token is selected from them for a column of each row."""

    def __init__(
        self, logits: Floats, draft_logits: Floats, draft_slots: Integers, floors: Floats, temperature: Floats,
        drafts: Integers, num_drafts: Integers, point_mass: Integers, block_max: Floats, block_sum: Floats,
        tile_sum: Floats, noise: Floats, block_size: int, tile_size: int,
    ) -> None:  # fmt: skip
        num_rows, width, self.vocab_size = logits.shape
        self.logits, self.draft_logits, self.floors, self.drafts = logits, draft_logits, floors, drafts
        self.draft_slots = draft_slots
        self.point_mass, self.noise, self.block_size, self.tile_size = point_mass, noise, block_size, tile_size
        self.scale = scale_of(temperature)
        self.tile_sum = tile_sum.reshape(num_rows, width, -1, block_size // tile_size)
        self.known: Verification = verification(
            logits, draft_logits, draft_slots, floors, temperature, drafts, num_drafts, point_mass,
            block_max, block_sum, self.vocab_size,
        )  # fmt: skip
        self.rows = arange(num_rows)
        self.greedy = temperature == 0

    def best(self, block_best: Integers) -> Integers:
        """Return the lowest index of the largest logit, [B, 1 + K]; anything where there is none, or by chance."""
        target = self.known.target
        num_blocks = target.block_max.shape[2]
        of_block = target.block_max.reshape(-1, num_blocks).argmax(axis=1)
        best: Integers = block_best[multiples(len(of_block), num_blocks) + of_block]
        return best.reshape(target.undefined.shape)

    def select(self, column: Integers, index: int, excluded: Integers) -> Integers:
        """Return a token from the target's distribution for one column of each row, by the noise of that try.

        One token of each row may be excluded (-1: none); it is selected if there is no other.
        """
        rows, noise, target = self.rows, self.noise[self.rows, column, index], self.known.target
        defined = ~target.undefined[rows, column] & ~self.greedy
        tiles = np.where(defined[:, None, None], self.tile_sum[rows, column], np.float32(0))
        block_mass = target.block_mass[rows, column].copy()
        # The excluded token's tile is added up without it, then its block.
        short = np.flatnonzero(excluded >= 0)
        if len(short):
            block, tile = excluded[short] // self.block_size, excluded[short] % self.block_size // self.tile_size
            weights = self._weights(column, block * self.block_size + tile * self.tile_size, short, excluded)
            tiles[short, block, tile] = weights.sum(axis=1)
            maximum = target.maximum[short, column[short]]
            factor = weight(target.block_max[short, column[short], block], NEVER, maximum, self.scale[short])
            block_mass[short, block] = tiles[short, block].sum(axis=1) * factor
        block = pick(block_mass, noise[:, 0])
        tile = pick(tiles[rows, block], noise[:, 1])
        first = block * self.block_size + tile * self.tile_size
        token = first + pick(self._weights(column, first, rows, excluded), noise[:, 2])
        return np.where(np.add.reduce(block_mass, axis=1) > 0, token, excluded)

    def _weights(self, column: Integers, first: Integers, rows: Integers, excluded: Integers) -> Floats:
        """Return the weights of the tiles that begin with these tokens, [rows, tile_size], relative to their blocks."""
        target, column = self.known.target, column[rows]
        defined = ~target.undefined[rows, column] & ~self.greedy[rows]
        tokens = first[:, None] + arange(self.tile_size)
        found = self.logits[rows[:, None], column[:, None], np.minimum(tokens, self.vocab_size - 1)]
        is_token = (tokens < self.vocab_size) & (tokens != excluded[rows][:, None]) & defined[:, None]
        maximum = np.where(defined, target.block_max[rows, column, first // self.block_size], 0)
        # A block without weight is picked only where there is none at all.
        maximum = np.where(maximum == NEVER, np.float32(0), maximum)[:, None]
        floor = self.floors[rows, column][:, None]
        return weight(np.where(is_token, found, NEVER), floor, maximum, self.scale[rows][:, None])

    def recover(self, column: Integers, rejected: NDArray[np.bool_], odds: Floats, num_tries: int) -> Integers:
        """Return a token from max(odds * p - q, 0) for rows whose draft was rejected, from p for the others."""
        none = np.full(len(column), -1)
        if not self.drafts.shape[1]:
            return self.select(column, 0, none)
        drafted = self.drafts[self.rows, np.minimum(column, self.drafts.shape[1] - 1)]
        # Of a point mass, what is left of the target is every other token.
        excluded = np.where(rejected & (self.point_mass != 0), drafted, -1)
        recovered = token = self.select(column, 0, excluded)
        open_rows = rejected & (self.point_mass == 0)
        for index in range(num_tries):
            if not open_rows.any():
                break
            tried = self.select(column, index, none)
            target, draft = self._odds_of(column, tried[:, None].clip(min=0), odds)
            kept = self.noise[self.rows, column, index, 3] * target[:, 0] < target[:, 0] - draft[:, 0]
            recovered = np.where(open_rows & kept, tried, recovered)
            open_rows &= ~kept
        if open_rows.any():
            every = np.broadcast_to(arange(self.vocab_size), (len(token), self.vocab_size))
            target, draft = self._odds_of(column, every, odds)
            left = np.maximum(target - draft, 0)
            recovered = np.where(open_rows & (left > 0).any(axis=1), self._pick_of(left, column, num_tries), recovered)
        return recovered

    def _odds_of(self, column: Integers, tokens: Integers, odds: Floats) -> tuple[Floats, Floats]:
        """Return what odds * p and q of tokens [B, N] are to each other, for columns with draft logits."""
        rows, target, draft = self.rows, self.known.target, self.known.draft
        column = np.minimum(column, self.drafts.shape[1] - 1)
        fits = (~target.undefined[rows, column] & ~draft.undefined[rows, column])[:, None]
        found = np.where(fits, self.logits[rows[:, None], column[:, None], tokens], NEVER)
        slots = np.where(fits, self.draft_slots[:, None], 0)
        proposed = np.where(fits, self.draft_logits[slots, column[:, None], tokens], NEVER)
        floor, scale = self.floors[rows, column][:, None], self.scale[:, None]
        p = odds[:, None] * weight(found, floor, target.maximum[rows, column][:, None], scale)
        q = weight(proposed, NEVER, draft.maximum[rows, column][:, None], scale)
        return p * draft.total[rows, column][:, None], q * target.total[rows, column][:, None]

    def _pick_of(self, masses: Floats, column: Integers, index: int) -> Integers:
        """Return a token by masses [B, V] and the noise of a try: its tile, its place in that, then its block."""
        rows, noise = self.rows, self.noise[self.rows, column, index]
        num_blocks = -(-self.vocab_size // self.block_size)
        padded = np.zeros((len(rows), num_blocks * self.block_size), dtype=np.float32)
        padded[:, : self.vocab_size] = masses
        blocks = padded.reshape(len(rows), num_blocks, -1, self.tile_size)
        tiles = blocks.sum(axis=1)
        tile = pick(tiles.sum(axis=2), noise[:, 1])
        place = pick(tiles[rows, tile], noise[:, 2])
        block = pick(blocks[rows, :, tile, place], noise[:, 0])
        return block * self.block_size + tile * self.tile_size + place

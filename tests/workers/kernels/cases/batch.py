"""Batches for cases: a few shapes, laid out as the engine stages them, with padding, poison."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workers.kernels.sentinels import PAD_BLOCK, PAD_ROW, PAD_SLOT, PAD_STATE_SLOT, POISON

Array = NDArray[Any]

# As an index it is out of every range, as a token or a count it is absurd.
INT_POISON = -0x5EED_DEAD_BEEF
# A number, so that a place that is left alone differs from one that has no number.
FLOAT_POISON = np.float32(-1234567)
EXTREMES = np.array([0, 1, (1 << 64) - 1, (1 << 64) - 2, 1 << 63, (1 << 63) - 1], dtype=np.uint64)


class Row(NamedTuple):
    """One row: n tokens from position `computed` on, the last d of them draft tokens."""

    n: int
    d: int
    computed: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows with padding, as flat arrays; the last block and the last state slot are unused."""

    rng: np.random.Generator
    k: int
    block_size: int
    vocab_size: int
    max_blocks: int
    num_blocks: int
    num_real: int
    num_scheduled: Array
    num_drafts: Array
    num_computed: Array
    query_start: Array
    state_slot: Array
    block_table: Array
    token_row: Array
    positions: Array
    slots: Array

    @property
    def num_rows(self) -> int:
        """Return the number of rows, including padding."""
        return len(self.num_scheduled)

    @property
    def num_tokens(self) -> int:
        """Return the number of tokens, including padding."""
        return len(self.token_row)

    @property
    def num_state_slots(self) -> int:
        """Return the number of state slots, one of them unused."""
        return self.num_real + 1

    @property
    def num_blocks_max(self) -> int:
        """Return the maximum number of blocks of a row."""
        return int(-(-(self.num_computed + self.num_scheduled).max() // self.block_size))

    @property
    def verified_first(self) -> Array:
        """Return the index of each row's first token to verify; 0 for padding rows."""
        first = self.query_start + self.num_scheduled - 1 - self.num_drafts
        return np.where(self.num_scheduled > 0, first, 0)

    @property
    def is_real(self) -> Array:
        """Return a mask of the real rows."""
        return self.num_scheduled > 0

    def ids(self) -> Array:
        """Return an id for each token; padding has id 0."""
        return np.where(self.token_row >= 0, self.rng.integers(0, self.vocab_size, self.num_tokens), 0)

    def words(self, count: int) -> Array:
        """Return random 64-bit integers, a quarter of them extreme."""
        values = self.rng.integers(0, 1 << 64, count, dtype=np.uint64)
        return np.where(self.rng.integers(4, size=count) == 0, self.rng.choice(EXTREMES, count), values)

    def cache(self) -> Array:
        """Return a KV cache with an entry for every position of a row after this step, else poison."""
        cache = np.full(self.num_blocks * self.block_size, POISON, dtype=np.uint64)
        table = self.block_table.reshape(self.num_rows, self.max_blocks)
        for row in range(self.num_real):
            at = np.arange(self.num_computed[row] + self.num_scheduled[row])
            cache[table[row, at // self.block_size] * self.block_size + at % self.block_size] = self.words(len(at))
        return cache

    def some_rows(self) -> Array:
        """Return some of the real rows, always with the last one, in any order."""
        others = self.rng.permutation(self.num_real - 1)[: self.num_real // 2]
        return self.rng.permutation([*others.tolist(), self.num_real - 1])


def integers(count: int) -> Array:
    """Return an int64 buffer of poison."""
    return np.full(count, INT_POISON, dtype=np.int64)


def floats(count: int) -> Array:
    """Return a float32 buffer of poison."""
    return np.full(count, FLOAT_POISON, dtype=np.float32)


def batch(
    rows: Sequence[Row],
    k: int,
    block_size: int,
    vocab_size: int,
    padding: int = 0,
    is_uniform: bool = False,
    seed: int = 0,
) -> Batch:
    """Lay out rows; padding rows have tokens in a uniform batch, and none in a ragged batch."""
    rng, num_real = np.random.default_rng(seed), len(rows)

    def field(values: Sequence[int], pad: int = 0) -> Array:
        return np.array([*values, *[pad] * padding], dtype=np.int64)

    num_scheduled, num_computed = field([row.n for row in rows]), field([row.computed for row in rows])
    widths = np.where(np.arange(num_real + padding) < num_real, num_scheduled, 1 + k if is_uniform else 0)
    query_start = np.cumsum(widths) - widths
    num_tokens = int(widths.sum()) + (0 if is_uniform else 2 * padding)
    need = [-(-(row.computed + row.n + k) // block_size) for row in rows]
    free = rng.permutation(sum(need)).tolist()
    table = np.full((num_real + padding, max(need) + 1), PAD_BLOCK, dtype=np.int64)
    token_row = np.full(num_tokens, PAD_ROW, dtype=np.int64)
    positions = np.zeros(num_tokens, dtype=np.int64)
    slots = np.full(num_tokens, PAD_SLOT, dtype=np.int64)
    for index, row in enumerate(rows):
        table[index, : need[index]] = [free.pop() for _ in range(need[index])]
        tokens = slice(query_start[index], query_start[index] + row.n)
        token_row[tokens] = index
        at = positions[tokens] = row.computed + np.arange(row.n)
        slots[tokens] = table[index, at // block_size] * block_size + at % block_size
    return Batch(
        rng=rng,
        k=k,
        block_size=block_size,
        vocab_size=vocab_size,
        max_blocks=max(need) + 1,
        num_blocks=sum(need) + 1,
        num_real=num_real,
        num_scheduled=num_scheduled,
        num_drafts=field([row.d for row in rows]),
        num_computed=num_computed,
        query_start=query_start,
        state_slot=field(rng.permutation(num_real).tolist(), PAD_STATE_SLOT),
        block_table=table.ravel(),
        token_row=token_row,
        positions=positions,
        slots=slots,
    )


def batches() -> Iterator[Batch]:
    """Yield 1, 3 and 7 rows with 0 to 4 draft tokens, of every kind.

    The last has more rows, tokens, positions and drafts than a program of any kernel takes at once.
    """
    yield batch([Row(1, 0, 0)], k=0, block_size=1, vocab_size=3, seed=1)
    yield batch([Row(2, 1, 4), Row(5, 0, 0), Row(1, 0, 6)], k=1, block_size=3, vocab_size=33, padding=1, seed=2)
    yield batch(
        [Row(3, 2, 1), Row(3, 2, 9), Row(3, 2, 6)],
        k=2, block_size=3, vocab_size=3, padding=1, is_uniform=True, seed=3,
    )  # fmt: skip
    yield batch([Row(4, 3, 8), Row(6, 1, 0), Row(2, 1, 1)], k=3, block_size=1, vocab_size=33, seed=4)
    yield batch(
        [
            Row(5, 4, 12), Row(16, 0, 0), Row(1, 0, 15), Row(3, 2, 31),
            Row(7, 4, 3), Row(2, 0, 16), Row(2, 1, 0),
        ],
        k=4, block_size=16, vocab_size=129, padding=1, seed=5,
    )  # fmt: skip
    many = [Row(1 + index % 5, index % 5, index % 3) for index in range(32)]
    yield batch([*many, Row(70, 0, 65)], k=4, block_size=7, vocab_size=3, padding=1, seed=6)

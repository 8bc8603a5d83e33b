"""Batches of odd shapes, and calls of ops with poisoned outputs and read-only inputs."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.workers.kernels.calls import Op, modes_of, run
from workers.kernels.sentinels import PAD_BLOCK, PAD_ROW, PAD_STATE_SLOT, POISON

Array = NDArray[Any]

BLOCK_SIZE = 3
MAX_MODEL_LEN = 23
MAX_BLOCKS = -(-MAX_MODEL_LEN // BLOCK_SIZE)
VOCAB_SIZE = 11
# As an index it is out of every range, as a token or a count it is absurd.
INT_POISON = -0x5EED_DEAD_BEEF


@dataclass(frozen=True, slots=True)
class Row:
    """One row: n tokens from position `computed` on, the last d of them draft tokens."""

    n: int
    d: int
    computed: int
    discard: bool
    state_slot: int
    blocks: tuple[int, ...]

    @property
    def first(self) -> int:
        """Index in the row of the first token to verify."""
        return self.n - 1 - self.d

    def cache_slot(self, position: int) -> int:
        """Return the KV-cache slot of a position of this row."""
        return self.blocks[position // BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows with padding; the last block of the pool and the last state slot are unused."""

    k: int
    rows: tuple[Row, ...]
    starts: tuple[int, ...]
    num_tokens: int
    num_blocks: int
    rng: np.random.Generator

    @property
    def num_rows(self) -> int:
        return len(self.starts)

    @property
    def num_slots(self) -> int:
        return self.num_blocks * BLOCK_SIZE

    @property
    def num_state_slots(self) -> int:
        return len(self.rows) + 2

    @property
    def num_blocks_max(self) -> int:
        return -(-max(row.computed + row.n for row in self.rows) // BLOCK_SIZE)

    @property
    def query_start(self) -> Array:
        return integers(self.starts)

    @property
    def num_scheduled(self) -> Array:
        return self.field([row.n for row in self.rows])

    @property
    def num_drafts(self) -> Array:
        return self.field([row.d for row in self.rows])

    @property
    def num_computed(self) -> Array:
        return self.field([row.computed for row in self.rows])

    @property
    def discard(self) -> Array:
        return self.field([int(row.discard) for row in self.rows])

    @property
    def state_slot(self) -> Array:
        return self.field([row.state_slot for row in self.rows], PAD_STATE_SLOT)

    @property
    def block_table(self) -> Array:
        table = np.full((self.num_rows, MAX_BLOCKS), PAD_BLOCK, dtype=np.int64)
        for index, row in enumerate(self.rows):
            table[index, : len(row.blocks)] = row.blocks
        return table.ravel()

    @property
    def token_row(self) -> Array:
        rows = np.full(self.num_tokens, PAD_ROW, dtype=np.int64)
        for index, _, token in self.tokens():
            rows[token] = index
        return rows

    @property
    def positions(self) -> Array:
        positions = np.zeros(self.num_tokens, dtype=np.int64)
        for index, offset, token in self.tokens():
            positions[token] = self.rows[index].computed + offset
        return positions

    @property
    def slots(self) -> Array:
        slots = np.full(self.num_tokens, PAD_BLOCK, dtype=np.int64)
        for index, offset, token in self.tokens():
            slots[token] = self.rows[index].cache_slot(self.rows[index].computed + offset)
        return slots

    def tokens(self) -> Iterator[tuple[int, int, int]]:
        """Yield (row, index in the row, flat index) of every real token."""
        for index, row in enumerate(self.rows):
            for offset in range(row.n):
                yield index, offset, self.starts[index] + offset

    def field(self, values: list[int], pad: int = 0) -> Array:
        """Return one value per row, padded."""
        return integers([*values, *[pad] * (self.num_rows - len(values))])

    def token_ids(self) -> Array:
        """Return valid ids; padding has id 0."""
        return np.where(self.token_row >= 0, self.rng.integers(0, VOCAB_SIZE, self.num_tokens), 0)

    def token_words(self) -> Array:
        """Return a random 64-bit integer for every real token; padding is poison."""
        return np.where(self.token_row >= 0, words(self.rng, self.num_tokens), np.uint64(POISON))


def batch(num_rows: int, k: int, uniform: bool, padded: bool, seed: int) -> Batch:
    """Make a batch; one row of a ragged batch ends at max_model_len."""
    rng = np.random.default_rng([num_rows, k, uniform, padded, seed])
    shapes = [_uniform(rng, k) if uniform else _ragged(rng, k) for _ in range(num_rows)]
    if not uniform:
        n, d, _, discard = shapes[-1]
        shapes[-1] = n, d, MAX_MODEL_LEN - n, discard
    needed = [-(-min(computed + n + k, MAX_MODEL_LEN) // BLOCK_SIZE) for n, _, computed, _ in shapes]
    num_blocks = sum(needed) + 2
    free = rng.permutation(num_blocks - 1).tolist()
    slots = rng.permutation(num_rows + 1).tolist()
    rows = []
    for (n, d, computed, discard), need in zip(shapes, needed, strict=True):
        rows.append(Row(n, d, computed, discard, slots.pop(), tuple(free.pop() for _ in range(need))))
    num_padded = num_rows + (1 + num_rows % 2 if padded else 0)
    lengths = [row.n for row in rows] + [(1 + k) if uniform else 0] * (num_padded - num_rows)
    starts = tuple(int(start) for start in np.cumsum([0, *lengths[:-1]]))
    num_tokens = sum(lengths) + (3 if padded and not uniform else 0)
    return Batch(k, tuple(rows), starts, num_tokens, num_blocks, rng)


def _uniform(rng: np.random.Generator, k: int) -> tuple[int, int, int, bool]:
    return 1 + k, k, int(rng.integers(1, MAX_MODEL_LEN - k)), False


def _ragged(rng: np.random.Generator, k: int) -> tuple[int, int, int, bool]:
    """Return n, d, computed and discard of a random row: decode, prefill chunk or its end."""
    kind, d, extra = int(rng.integers(4)), int(rng.integers(k + 1)), int(rng.integers(1, 6))
    n, d, discard = ((1 + d, d, False), (extra, 0, True), (extra, 0, False), (extra + d, d, False))[kind]
    computed = int(rng.integers(1 if kind == 0 else 0, MAX_MODEL_LEN - n + 1)) if rng.integers(3) else int(kind == 0)
    return n, d, computed, discard


SHAPES = [
    (num_rows, k, uniform, padded) for num_rows in (1, 3, 7) for k in (0, 1, 3) for uniform in (False, True)
    for padded in (False, True)
]  # fmt: skip
each_shape = pytest.mark.parametrize(("num_rows", "k", "uniform", "padded"), SHAPES)


def batches(num_rows: int, k: int, uniform: bool, padded: bool, count: int = 4) -> Iterator[Batch]:
    """Yield several batches of one shape."""
    for seed in range(count):
        yield batch(num_rows, k, uniform, padded, seed)


def integers(values: Any) -> Array:
    """Return an int64 array."""
    return np.array(values, dtype=np.int64)


def words(rng: np.random.Generator, count: int) -> Array:
    """Return random 64-bit integers."""
    return rng.integers(0, 1 << 64, count, dtype=np.uint64)


def int_poison(length: int) -> Array:
    """Return an int64 buffer of poison."""
    return np.full(length, INT_POISON, dtype=np.int64)


def word_poison(length: int) -> Array:
    """Return a uint64 buffer of poison."""
    return np.full(length, POISON, dtype=np.uint64)


def call(function: Op, **arguments: Any) -> dict[str, Array]:
    """Call an op on copies with read-only inputs, and return its writable arguments."""
    modes = modes_of(function)
    assert list(arguments) == list(modes)
    made = {name: np.array(value) if isinstance(value, np.ndarray) else value for name, value in arguments.items()}
    for name, mode in modes.items():
        if mode == "in":
            made[name].flags.writeable = False
        elif mode == "int":
            assert type(made[name]) is int
    run(function, **made)
    return {name: made[name] for name, mode in modes.items() if mode in ("out", "inout")}


def assert_pad_never_indexes(function: Op, arguments: dict[str, Any], *indexed: str) -> None:
    """Check that an op neither reads nor writes the last element of a buffer (index -1)."""
    for name in indexed:
        results = []
        for sentinel in (3, 1009):
            changed = np.array(arguments[name])
            changed[-1] = sentinel
            result = call(function, **{**arguments, name: changed})
            if name in result:
                assert result[name][-1] == sentinel, f"{name}: the last element was written"
                result[name] = result[name][:-1]
            results.append(result)
        for output in results[0]:
            np.testing.assert_array_equal(results[0][output], results[1][output], f"{output} depends on {name}[-1]")

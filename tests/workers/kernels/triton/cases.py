"""Random ragged batches for the Triton kernels: padded, shuffled, with extreme words."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.kernels.sentinels import PAD_BLOCK, PAD_ROW, PAD_STATE_SLOT

Array = NDArray[Any]
INT_POISON = -0x5EED_DEAD_BEEF
EXTREMES = np.array([0, 1, (1 << 64) - 1, (1 << 64) - 2, 1 << 63, (1 << 63) - 1], dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Case:
    """One padded batch: fields of rows, then of tokens; the last block and slot are unused."""

    rng: np.random.Generator
    k: int
    block_size: int
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
        return len(self.num_scheduled)

    @property
    def num_tokens(self) -> int:
        return len(self.token_row)

    @property
    def num_state_slots(self) -> int:
        return self.num_rows + 1

    @property
    def max_model_len(self) -> int:
        return self.max_blocks * self.block_size - 1

    @property
    def num_blocks_max(self) -> int:
        return int(-(-(self.num_computed + self.num_scheduled).max() // self.block_size))

    def tokens(self, vocab_size: int) -> Array:
        """Return valid ids; padding has id 0."""
        return np.where(self.token_row >= 0, self.rng.integers(0, vocab_size, self.num_tokens), 0)

    def words(self, count: int) -> Array:
        """Return random 64-bit integers, one in four extreme."""
        values = self.rng.integers(0, 1 << 64, count, dtype=np.uint64)
        return np.where(self.rng.integers(4, size=count) == 0, self.rng.choice(EXTREMES, count), values)

    def integers(self, count: int) -> Array:
        """Return poison: an invalid index, token or count."""
        return np.full(count, INT_POISON, dtype=np.int64)


def case(num_real: int, k: int, block_size: int = 4, padding: int = 2, seed: int = 0, more_blocks: int = 0) -> Case:
    """Make a batch of decodes and prefill chunks; some rows are new, one ends with the model.

    The block table of each row ends with at least `more_blocks` entries that are padding.
    """
    rng = np.random.default_rng([num_real, k, block_size, padding, seed])
    num_rows, max_blocks = num_real + padding, 29 // block_size + 3
    max_model_len = max_blocks * block_size - 1
    max_blocks += more_blocks
    drafts = rng.integers(0, k + 1, num_real)
    scheduled = 1 + drafts + rng.integers(0, 7, num_real) * rng.integers(0, 2, num_real)
    computed = rng.integers(0, max_model_len - scheduled + 1) * rng.integers(0, 4, num_real).clip(max=1)
    computed[-1] = max_model_len - scheduled[-1]

    def row_field(values: Array, pad: int = 0) -> Array:
        return np.concatenate([values, np.full(padding, pad)]).astype(np.int64)

    num_scheduled, num_computed = row_field(scheduled), row_field(computed)
    query_start = np.cumsum(num_scheduled) - num_scheduled
    num_tokens = int(num_scheduled.sum()) + 2 * padding
    # Every row has blocks for the draft tokens of its next step, up to the model's length.
    need = -(-np.minimum(computed + scheduled + k, max_model_len) // block_size)
    free = rng.permutation(int(need.sum()) + 1).tolist()
    num_blocks = len(free) + 1
    table = np.full((num_rows, max_blocks), PAD_BLOCK, dtype=np.int64)
    token_row = np.full(num_tokens, PAD_ROW, dtype=np.int64)
    positions, slots = np.zeros(num_tokens, dtype=np.int64), np.full(num_tokens, -1, dtype=np.int64)
    for row in range(num_real):
        table[row, : need[row]] = [free.pop() for _ in range(need[row])]
        tokens = slice(query_start[row], query_start[row] + scheduled[row])
        token_row[tokens] = row
        at = positions[tokens] = computed[row] + np.arange(scheduled[row])
        slots[tokens] = table[row, at // block_size] * block_size + at % block_size
    return Case(
        rng=rng,
        k=k,
        block_size=block_size,
        max_blocks=max_blocks,
        num_blocks=num_blocks,
        num_real=num_real,
        num_scheduled=num_scheduled,
        num_drafts=row_field(drafts),
        num_computed=num_computed,
        query_start=query_start,
        state_slot=row_field(rng.permutation(num_rows)[:num_real], PAD_STATE_SLOT),
        block_table=table.ravel(),
        token_row=token_row,
        positions=positions,
        slots=slots,
    )

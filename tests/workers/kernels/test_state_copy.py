"""States kept with blocks: each at the end of its block, or after the last token that stays."""

from typing import Any

import numpy as np

from tests.workers.kernels.batches import (
    BLOCK_SIZE,
    MAX_BLOCKS,
    Batch,
    assert_pad_never_indexes,
    batches,
    call,
    each_shape,
    integers,
    words,
)
from workers.kernels.poison.vectorised import poison_states
from workers.kernels.sentinels import POISON
from workers.kernels.state_copy.vectorised import state_copy

WIDTH = 3


def arguments_of(batch: Batch) -> dict[str, Any]:
    """Return a call in which every state and window word is another, and what rows accepted is drawn."""
    k, slots = batch.k, batch.num_state_slots
    accepted = [1 if row.discard else int(batch.rng.integers(row.d + 2)) for row in batch.rows]
    return {
        "num_computed": batch.num_computed,
        "num_scheduled": batch.num_scheduled,
        "num_drafts": batch.num_drafts,
        "accepted": batch.field(accepted),
        "state_slot": batch.state_slot,
        "block_table": batch.block_table,
        "states": words(batch.rng, slots * (2 + k)),
        "conv": words(batch.rng, slots * (WIDTH + k)),
        "block_states": words(batch.rng, batch.num_blocks),
        "block_windows": words(batch.rng, batch.num_blocks * (WIDTH - 1)),
        "block_size": BLOCK_SIZE,
        "max_blocks": MAX_BLOCKS,
        "num_speculative_tokens": k,
        "conv_width": WIDTH,
    }


def expected_of(batch: Batch, given: dict[str, Any]) -> tuple[list[int], list[int]]:
    """Walk over the verified tokens one by one; each leaves its state in its block, where the next overwrites it."""
    states, windows = given["block_states"].tolist(), given["block_windows"].tolist()
    for index, row in enumerate(batch.rows):
        base = row.computed + row.first
        for offset in range(int(given["accepted"][index]) + 1):
            if base + offset:
                block = row.blocks[(base + offset - 1) // BLOCK_SIZE]
                states[block] = int(given["states"][row.state_slot * (2 + batch.k) + offset])
                start = row.state_slot * (WIDTH + batch.k) + offset
                windows[block * 2 : block * 2 + 2] = given["conv"][start : start + 2].tolist()
    return states, windows


@each_shape
def test_a_block_keeps_the_state_after_the_last_accepted_token_in_it(
    num_rows: int, k: int, uniform: bool, padded: bool
) -> None:
    for batch in batches(num_rows, k, uniform, padded, 8):
        given = arguments_of(batch)
        found = call(state_copy, **given)
        assert (found["block_states"].tolist(), found["block_windows"].tolist()) == expected_of(batch, given)
        assert_pad_never_indexes(state_copy, given, "block_states", "block_windows", "states", "conv")


def test_a_run_longer_than_a_block_leaves_a_state_in_each_block_it_fills() -> None:
    states, conv = np.arange(100, 109, dtype=np.uint64), np.arange(200, 209, dtype=np.uint64)
    kept = {}
    for accepted in range(9):
        found = call(
            state_copy,
            num_computed=integers([5]),
            num_scheduled=integers([8]),
            num_drafts=integers([7]),
            accepted=integers([accepted]),
            state_slot=integers([0]),
            block_table=integers([4, 3, 2, 1, 0, 5, 6]),
            states=states,
            conv=conv,
            block_states=np.zeros(7, dtype=np.uint64),
            block_windows=np.zeros(7, dtype=np.uint64),
            block_size=2,
            max_blocks=7,
            num_speculative_tokens=7,
            conv_width=2,
        )
        assert (found["block_windows"] == np.where(found["block_states"], found["block_states"] + 100, 0)).all()
        kept[accepted] = found["block_states"].tolist()
    # Tokens 4 and 5 lie in block 2, tokens 6 and 7 in block 1; the token verified first is number 5.
    assert kept[0] == [0, 0, 100, 0, 0, 0, 0]
    assert kept[1] == [0, 0, 101, 0, 0, 0, 0]
    assert kept[4] == [103 + 1, 103, 101, 0, 0, 0, 0]
    assert kept[8] == [105, 103, 101, 0, 0, 107, 108]


def test_poisoned_are_the_states_of_the_blocks_named_and_no_others() -> None:
    found = call(
        poison_states,
        blocks=integers([2, 0, 1]),
        block_states=np.arange(4, dtype=np.uint64),
        block_windows=np.arange(8, dtype=np.uint64),
        num_blocks=2,
        window_length=2,
    )
    assert found["block_states"].tolist() == [POISON, 1, POISON, 3]
    assert found["block_windows"].tolist() == [POISON, POISON, 2, 3, POISON, POISON, 6, 7]

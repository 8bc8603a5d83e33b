"""States stored with blocks: at the end of a block, or after the last accepted token."""

import numpy as np

from tests.workers.kernels.batches import (
    call,
    integers,
)
from workers.kernels.state_copy.definition import state_copy


def test_run_over_several_blocks_stores_a_state_in_each() -> None:
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
    # Tokens 4 and 5 are in block 2, tokens 6 and 7 in block 1; the first to verify is number 5.
    assert kept[0] == [0, 0, 100, 0, 0, 0, 0]
    assert kept[1] == [0, 0, 101, 0, 0, 0, 0]
    assert kept[4] == [103 + 1, 103, 101, 0, 0, 0, 0]
    assert kept[8] == [105, 103, 101, 0, 0, 107, 108]

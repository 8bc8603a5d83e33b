"""Shared code of drafters: the cached words that a row attends to."""

import numpy as np
import pytest

from tests.workers.kernels.batches import integers
from tests.workers.kernels.cases.batch import Row, batch
from tests.workers.kernels.cases.drafters import made
from workers.kernels.arithmetic.definition import WORDS, attention_weight
from workers.kernels.drafting.numpy import cached_sums
from workers.kernels.eagle.definition import DraftChain


@pytest.mark.parametrize("behind", [0, 1, 5])
def test_cached_sums_past_the_last_block_use_the_real_position(behind: int) -> None:
    given = made(DraftChain, batch([Row(3, 1, 2), Row(3, 1, 3)], k=1, block_size=3, vocab_size=9, seed=1), 1)
    length = given.num_blocks_max * given.block_size
    seen, sums = cached_sums(given, integers([length - 1, length - 1 + behind]))
    table = given.block_table.reshape(2, -1)[:, : given.num_blocks_max]
    for row, last in enumerate([length - 1, length - 1 + behind]):
        words = np.concatenate([given.drafter_kv.reshape(-1, given.block_size)[block] for block in table[row]]).tolist()
        expected = sum(word * attention_weight(last, at) for at, word in enumerate(words))
        assert (int(seen[row]), int(sums[row])) == (expected % WORDS, sum(words) % WORDS)

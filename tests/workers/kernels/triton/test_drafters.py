"""The Triton n-gram search in a history that is longer than a block of the kernel."""

import numpy as np
import pytest

from tests.workers.kernels.triton.launches import assert_equal
from workers.kernels.ngram import numpy as ngram
from workers.kernels.ngram import triton as ngram_twin


@pytest.mark.parametrize(("at", "length"), [(0, 1), (126, 3), (128, 2), (290, 3)])
def test_ngram_search_finds_a_match_in_any_block(at: int, length: int) -> None:
    end, block_size = 301, 7
    history = 1000 + np.arange(44 * block_size)
    suffix = np.arange(length)
    history[end - length + 1 : end + 1] = history[at : at + length] = suffix
    found = assert_equal(
        ngram_twin.ngram_search,
        ngram.ngram_search,
        next_tokens=suffix[-1:],
        positions=np.array([end - 1]),
        token_index=np.array([0]),
        valid=np.array([1]),
        block_table=np.arange(44),
        drafter_kv=history.astype(np.uint64),
        draft_tokens=np.array([77, 77]),
        block_size=block_size,
        max_blocks=44,
        num_blocks_max=44,
        num_speculative_tokens=2,
        num_proposed=2,
    )
    assert found["draft_tokens"].tolist() == history[at + length : at + length + 2].tolist()

"""The Triton kernel that stores keys and values writes what its definition does."""

import pytest

from tests.workers.kernels.triton.cases import case
from tests.workers.kernels.triton.launches import assert_equal
from workers.kernels.arithmetic.vectorised import VOCAB_SIZE_MAX
from workers.kernels.kv_write import vectorised as definition
from workers.kernels.kv_write.triton import kv_write


@pytest.mark.parametrize(
    ("num_rows", "k", "block_size", "layer"), [(1, 0, 1, 0), (7, 3, 4, 1), (33, 5, 7, 7), (33, 1, 1, 64)]
)
def test_every_token_with_a_slot_stores_its_word_there_and_nothing_else_changes(
    num_rows: int, k: int, block_size: int, layer: int
) -> None:
    for seed, padding in enumerate((0, 3)):
        batch = case(num_rows, k, block_size, padding, seed)
        assert_equal(
            kv_write,
            definition.kv_write,
            input_ids=batch.tokens(VOCAB_SIZE_MAX),
            positions=batch.positions,
            slots=batch.slots,
            hidden=batch.words(batch.num_tokens),
            kv=batch.words(batch.num_blocks * block_size),
            layer=layer,
        )

"""The Triton kernels of structured output write what their definitions do."""

import numpy as np
import pytest

from tests.workers.kernels.triton.cases import case
from tests.workers.kernels.triton.launches import assert_equal
from workers.kernels.grammar import vectorised as definition
from workers.kernels.grammar.triton import apply_masks, grammar_drafts
from workers.kernels.process_logits.arguments import BITS
from workers.kernels.sentinels import NO_DRAFT


@pytest.mark.parametrize(("num_rows", "k"), [(1, 1), (7, 3), (33, 5)])
def test_some_rows_verify_what_the_host_names_and_the_others_what_they_did(num_rows: int, k: int) -> None:
    batch = case(num_rows, k)
    assert_equal(
        grammar_drafts,
        definition.grammar_drafts,
        rows=batch.rng.permutation(num_rows)[: -(-num_rows * 3 // 4)],
        query_start=batch.query_start,
        num_scheduled=batch.num_scheduled,
        num_drafts=batch.num_drafts,
        host_ids=batch.rng.integers(NO_DRAFT, 3, batch.num_tokens),
        input_ids=batch.integers(batch.num_tokens),
        scheduled_drafts=batch.integers(batch.num_rows * k),
        num_speculative_tokens=k,
    )


@pytest.mark.parametrize("vocab_size", [2, 31, 32, 33, 129, 300])
def test_a_mask_leaves_tokens_out_of_its_column_alone(vocab_size: int) -> None:
    rng = np.random.default_rng(vocab_size)
    num_words = -(-vocab_size // BITS)
    assert_equal(
        apply_masks,
        definition.apply_masks,
        columns=rng.permutation(9)[:5],
        masks=rng.integers(0, 1 << BITS, 5 * num_words),
        logits=rng.normal(size=9 * vocab_size).astype(np.float32),
        vocab_size=vocab_size,
    )

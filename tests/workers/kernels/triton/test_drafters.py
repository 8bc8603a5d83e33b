"""The Triton kernels of drafters beside the EAGLE-like one write what their definitions do."""

import numpy as np
import pytest

from tests.workers.kernels.calls import Op
from tests.workers.kernels.triton.cases import case
from tests.workers.kernels.triton.drafters import SHAPES, WIDTH, arguments_of
from tests.workers.kernels.triton.launches import assert_equal, define, launch
from workers.kernels.dflash import triton as dflash_twin
from workers.kernels.dflash import vectorised as dflash
from workers.kernels.draft_model import triton as draft_model_twin
from workers.kernels.draft_model import vectorised as draft_model
from workers.kernels.medusa import triton as medusa_twin
from workers.kernels.medusa import vectorised as medusa
from workers.kernels.mtp import triton as mtp_twin
from workers.kernels.mtp import vectorised as mtp
from workers.kernels.ngram import triton as ngram_twin
from workers.kernels.ngram import vectorised as ngram

each_shape = pytest.mark.parametrize(("num_rows", "k", "block_size", "padding"), SHAPES)


PER_TOKEN: tuple[tuple[Op, Op], ...] = (
    (mtp.mtp_pass, mtp_twin.mtp_pass),
    (dflash.dflash_context, dflash_twin.dflash_context),
)


@pytest.mark.parametrize(("definition", "twin"), PER_TOKEN)
@each_shape
def test_what_a_drafter_writes_for_every_token_is_as_defined(
    definition: Op, twin: Op, num_rows: int, k: int, block_size: int, padding: int
) -> None:
    for seed in range(2):
        batch = case(num_rows, k, block_size, padding, seed)
        assert_equal(twin, definition, **arguments_of(definition, batch))


@pytest.mark.parametrize("width", [0, WIDTH])
@each_shape
def test_a_draft_model_chain_predicts_as_defined(
    width: int, num_rows: int, k: int, block_size: int, padding: int
) -> None:
    for num_proposed in sorted({0, 1, k - 1, k}):
        batch = case(num_rows, k, block_size, padding, num_proposed)
        definition = draft_model.draft_model_chain
        given = arguments_of(definition, batch, num_proposed=num_proposed, conv_width=width)
        assert_equal(draft_model_twin.draft_model_chain, definition, **given)


@pytest.mark.parametrize("width", [0, WIDTH])
@each_shape
def test_a_draft_model_catches_up_as_defined(width: int, num_rows: int, k: int, block_size: int, padding: int) -> None:
    batch = case(num_rows, k, block_size, padding)
    given = arguments_of(draft_model.draft_model_pass, batch, conv_width=width)
    expected = define(draft_model.draft_model_pass, **given)
    found = launch(draft_model_twin.draft_model_pass, **given)
    assert found["drafter_kv"].tolist() == expected["drafter_kv"].tolist()
    real = batch.token_row >= 0
    for name in ("drafter_hidden", "drafter_attended"):
        np.testing.assert_array_equal(found[name][real], expected[name][real], name)
    for row in range(batch.num_real):
        # A count of this step leads to at most 2 + d states.
        first = batch.state_slot[row] * (2 + k)
        states = slice(first, first + 2 + batch.num_drafts[row])
        assert found["drafter_states"][states].tolist() == expected["drafter_states"][states].tolist()


@each_shape
def test_the_chain_of_a_prediction_layer_and_a_block_propose_as_defined(
    num_rows: int, k: int, block_size: int, padding: int
) -> None:
    for num_proposed in sorted({0, 1, k - 1, k}):
        batch = case(num_rows, k, block_size, padding, num_proposed)
        for definition, twin in ((mtp.mtp_chain, mtp_twin.mtp_chain), (dflash.dflash_block, dflash_twin.dflash_block)):
            assert_equal(twin, definition, **arguments_of(definition, batch, num_proposed=num_proposed))


@each_shape
def test_medusa_heads_propose_as_defined(num_rows: int, k: int, block_size: int, padding: int) -> None:
    for num_proposed in sorted({0, 1, k - 1, k}):
        batch = case(num_rows, k, block_size, padding, num_proposed)
        given = arguments_of(medusa.medusa_heads, batch, num_proposed=num_proposed)
        assert_equal(medusa_twin.medusa_heads, medusa.medusa_heads, **given)


@pytest.mark.parametrize(("at", "length"), [(0, 1), (126, 3), (128, 2), (290, 3)])
def test_a_match_in_any_block_of_a_long_history_is_found(at: int, length: int) -> None:
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


@pytest.mark.parametrize("vocab_size", [2, 300, 3000])
def test_a_draft_model_predicts_the_largest_logit_of_a_vocabulary_of_any_size(vocab_size: int) -> None:
    definition = draft_model.draft_model_chain
    given = arguments_of(definition, case(3, 2), vocab_size=vocab_size)
    assert_equal(draft_model_twin.draft_model_chain, definition, **given)

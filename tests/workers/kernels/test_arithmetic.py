"""The arithmetic of definitions and NumPy twins equals `workers.record.model`, word by word."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from scenarios.spec import EngineSpec
from tests.workers.kernels.batches import integers
from workers.kernels.arithmetic import definition
from workers.kernels.arithmetic import numpy as arithmetic
from workers.record import model

WORD = st.integers(0, model.MASK)
EDGES = st.sampled_from((0, 1, model.MASK, model.MASK - 1, 1 << 63, (1 << 63) - 1))
WORDS = st.lists(WORD | EDGES, min_size=1, max_size=9)
POSITION = st.integers(0, 1 << 20)
TOKEN = st.integers(0, 1 << 16)
quick = settings(max_examples=200)


@quick
@given(WORD | EDGES, WORD | EDGES, TOKEN, POSITION, st.integers(0, model.DRAFTER_LAYER + 2))
def test_definition_arithmetic_equals_model_arithmetic(
    word: int, other: int, token: int, position: int, layer: int
) -> None:
    assert definition.mix(word) == model.mix(word)
    assert definition.embed(token) == model.embed(token)
    assert definition.kv_entry(word, position, layer) == model.kv_entry(word, position, layer)
    assert definition.after_attention(word, other) == model.after_attention(word, other)
    assert definition.after_recurrent(word, other) == model.after_recurrent(word, other)
    assert definition.logit(word, token) == model.logit(word, token)
    assert definition.draft_hidden(word, token) == model.draft_hidden(word, token)
    assert definition.embed(-1 - token) == model.embed(0)


@quick
@given(WORD | EDGES, st.lists(WORD | EDGES, min_size=2, max_size=8))
def test_definition_windows_and_weights_equal_the_models(state: int, window: list[int]) -> None:
    assert definition.convolve(window) == model.convolve(window)
    assert definition.advance(state, window) == model.advance(state, window)
    last = len(window) - 1
    attended = sum(word * definition.attention_weight(last, at) for at, word in enumerate(window))
    sums = sum(window), sum(word * at for at, word in enumerate(window))
    assert attended % definition.WORDS == model.attention(*sums, last)


def array(values: list[int]) -> arithmetic.Words:
    return np.array(values, dtype=np.uint64)


@quick
@given(WORDS)
def test_numpy_mix_equals_scalar_mix(values: list[int]) -> None:
    assert arithmetic.mix(array(values)).tolist() == [model.mix(value) for value in values]


@quick
@given(st.lists(TOKEN, min_size=1, max_size=9))
def test_numpy_embed_equals_scalar_embed(tokens: list[int]) -> None:
    assert arithmetic.embed(integers(tokens)).tolist() == [model.embed(token) for token in tokens]


@quick
@given(
    st.lists(st.tuples(WORD, st.integers(0, arithmetic.POSITIONS_MAX - 1)), min_size=1, max_size=9),
    st.integers(0, model.DRAFTER_LAYER + 2),
)
def test_numpy_kv_words_equals_scalar_kv_word(pairs: list[tuple[int, int]], layer: int) -> None:
    hidden, positions = array([pair[0] for pair in pairs]), integers([pair[1] for pair in pairs])
    expected = [model.kv_entry(word, position, layer) for word, position in pairs]
    assert arithmetic.kv_entries(hidden, positions, layer).tolist() == expected
    assert hidden.tolist() == [pair[0] for pair in pairs]


@quick
@given(st.lists(st.lists(WORD | EDGES, min_size=5, max_size=5), min_size=1, max_size=3))
def test_numpy_attention_equals_scalar_attention(rows: list[list[int]]) -> None:
    index = integers(range(5 * len(rows)))
    seen, sums = arithmetic.attention(np.array(rows, dtype=np.uint64), index)
    assert len(sums) == len(seen) == 5 * len(rows)
    for row, position in product(range(len(rows)), range(5)):
        entries = rows[row][: 1 + position]
        weighted = sum(word * at for at, word in enumerate(entries))
        assert int(sums[5 * row + position]) == sum(entries) & model.MASK
        assert int(seen[5 * row + position]) == model.attention(sum(entries), weighted, position)


@quick
@given(st.lists(WORD | EDGES, min_size=8, max_size=8), st.lists(st.integers(-1, 3), min_size=4, max_size=4))
def test_cached_words_reads_the_first_blocks_of_each_row(values: list[int], table: list[int]) -> None:
    found = arithmetic.cached_entries(array(values), integers(table), block_size=2, max_blocks=2, num_blocks_max=1)
    assert len(found) == len(table[::2])
    for row, block in enumerate(table[::2]):
        assert block < 0 or found[row].tolist() == values[2 * block : 2 * block + 2]


@quick
@given(st.lists(st.tuples(WORD, TOKEN), min_size=1, max_size=9))
def test_numpy_draft_hidden_equals_scalar_draft_hidden(pairs: list[tuple[int, int]]) -> None:
    found = arithmetic.draft_hidden(array([pair[0] for pair in pairs]), integers([pair[1] for pair in pairs]))
    assert found.tolist() == [model.draft_hidden(*pair) for pair in pairs]


@quick
@given(st.lists(WORD, min_size=2, max_size=8))
def test_taps_equal_the_weights_of_convolve(window: list[int]) -> None:
    total = arithmetic.window_weights(len(window)).dot(array(window))
    assert arithmetic.mix(np.array([total])).tolist() == [model.convolve(window)]


@quick
@given(WORDS, st.integers(1, 40))
def test_numpy_scores_equal_scalar_logits(hidden: list[int], size: int) -> None:
    found = arithmetic.scores(array(hidden), size).tolist()
    assert found == [[model.logit(word, token) for token in range(size)] for word in hidden]


def test_arithmetic_constants_equal_model_constants() -> None:
    for name in ("GOLDEN", "POSITION", "LAYER", "VOCABULARY", "DECAY", "DRAFTER_LAYER", "LOGIT_SHIFT"):
        assert int(getattr(arithmetic, name)) == getattr(definition, name) == getattr(model, name), name


def test_index_tables_equal_their_definition() -> None:
    assert arithmetic.multiples(4, 3).tolist() == [0, 3, 6, 9]
    assert arithmetic.tiled(3, 2).tolist() == [0, 1, 2, 0, 1, 2]
    assert arithmetic.repeated(3, 2).tolist() == [0, 0, 1, 1, 2, 2]
    assert arithmetic.runs(2, 3).tolist() == [[0, 1, 2], [1, 2, 3]]
    assert arithmetic.lines(2, 3).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert arithmetic.first_entries(2, 3, 2).tolist() == [0, 1, 3, 4]
    assert arithmetic.columns(3, 4, num_real=2, count=3).tolist() == [0, 4, 1, 5, 2, 6]


def test_tables_cover_all_ids_and_positions_of_specifications() -> None:
    spec = EngineSpec(vocab_size=65536, max_model_len=65536, num_speculative_tokens=16)
    for key in ("vocab_size", "max_model_len", "num_speculative_tokens"):
        with pytest.raises(ValidationError):
            EngineSpec.model_validate({key: getattr(spec, key) + 1})
    # A block drafter has a mask token after the vocabulary; chains exceed the longest model.
    assert len(arithmetic.embeddings()) == spec.vocab_size + 1
    assert len(arithmetic.position_terms(0)) > spec.max_model_len + 2 * spec.num_speculative_tokens


def test_shared_arrays_cannot_be_written() -> None:
    assert arithmetic.arange(5).tolist() == [0, 1, 2, 3, 4]
    assert arithmetic.column(3).tolist() == [[0], [1], [2]]
    assert not arithmetic.arange(5).flags.writeable
    assert not arithmetic.column(3).flags.writeable

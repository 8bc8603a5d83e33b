"""Drafters beside the EAGLE-like one and the draft model: what they cache, and what they propose."""

import numpy as np
import pytest

from tests.workers.kernels.batches import (
    BLOCK_SIZE,
    MAX_BLOCKS,
    VOCAB_SIZE,
    assert_pad_never_indexes,
    batches,
    call,
    each_shape,
    int_poison,
    integers,
    words,
)
from tests.workers.kernels.calls import modes_of
from tests.workers.kernels.drafting import (
    assert_proposed,
    assert_scratch,
    cache_of,
    cached_words,
    line_of,
    next_tokens_of,
    proposing,
    seen_from,
)
from tests.workers.kernels.test_draft import kept_of, token_index
from workers.kernels.dflash.vectorised import dflash_block, dflash_context
from workers.kernels.drafter_limit.vectorised import limit_drafts, limit_slots
from workers.kernels.extract_hidden_states.vectorised import extract_hidden_states
from workers.kernels.medusa.vectorised import medusa_heads
from workers.kernels.mtp.vectorised import mtp_chain, mtp_pass
from workers.kernels.ngram.arguments import NGRAM_MAX
from workers.kernels.ngram.vectorised import ngram_search, write_tokens
from workers.kernels.sentinels import NO_DRAFT, PAD_SLOT
from workers.record import model


@each_shape
def test_an_mtp_layer_sees_each_token_behind_the_hidden_word_before_it_and_carries_the_last_kept_one(
    num_rows: int, k: int, uniform: bool, padded: bool
) -> None:
    for batch in batches(num_rows, k, uniform, padded):
        kept, ids, hidden = kept_of(batch), batch.token_ids(), batch.token_words()
        accepted = [1 if row.discard else valid for row, valid in zip(batch.rows, kept.valid, strict=True)]
        carried = words(batch.rng, batch.num_state_slots)
        arguments = {
            "hidden": hidden,
            "input_ids": ids,
            "positions": batch.positions,
            "slots": batch.slots,
            "query_start": batch.query_start,
            "num_computed": batch.num_computed,
            "accepted": batch.field(accepted),
            "token_index": token_index(batch, kept),
            "state_slot": batch.state_slot,
            "carried": carried,
            "drafter_kv": words(batch.rng, batch.num_slots),
        }
        found = call(mtp_pass, **arguments)
        expected = arguments["drafter_kv"].copy()
        for index, offset, token in batch.tokens():
            row = batch.rows[index]
            first = int(carried[row.state_slot]) if row.computed else 0
            before = int(hidden[token - 1]) if offset else first
            vector = model.draft_hidden(before, int(ids[token]))
            expected[row.cache_slot(row.computed + offset)] = model.kv_word(
                vector, row.computed + offset, model.DRAFTER_LAYER
            )
        assert found["drafter_kv"].tolist() == expected.tolist()
        for index, row in enumerate(batch.rows):
            last = kept.last[index] - (accepted[index] == 0)
            word = hidden[batch.starts[index] + last] if last >= 0 else carried[row.state_slot]
            assert found["carried"][row.state_slot] == word
        owned = [row.state_slot for row in batch.rows]
        others = [slot for slot in range(batch.num_state_slots) if slot not in owned]
        assert found["carried"][others].tolist() == carried[others].tolist()
        assert_pad_never_indexes(mtp_pass, arguments, "drafter_kv", "carried")


@each_shape
def test_an_mtp_chain_goes_on_from_its_own_output(num_rows: int, k: int, uniform: bool, padded: bool) -> None:
    for batch in batches(num_rows, k, uniform, padded):
        kept, hidden = kept_of(batch), batch.token_words()
        common = proposing(batch, kept, VOCAB_SIZE)
        for num_proposed in range(k + 1):
            arguments = {"hidden": hidden, **common, "num_proposed": num_proposed}
            found = call(mtp_chain, **arguments)
            for index, row in enumerate(batch.rows):
                cached = cached_words(common["drafter_kv"], batch, kept, index)
                before = int(hidden[batch.starts[index] + kept.last[index]])
                token, raw, proposed = int(common["next_tokens"][index]), [], []
                for _ in range(num_proposed):
                    vector, position = model.draft_hidden(before, token), len(cached)
                    cached.append(model.kv_word(vector, position, model.DRAFTER_LAYER))
                    before = model.mix((vector + seen_from(position, cached)) & model.MASK)
                    raw.append(before)
                    token = line_of(common["script"], row.state_slot, position + 1)
                    proposed.append(token)
                assert found["raw"].reshape(batch.num_rows, k)[index, :num_proposed].tolist() == raw
                assert_proposed(found, index, batch, kept, proposed)
            assert_scratch(found["drafter_kv"], common["drafter_kv"], batch, kept, num_proposed)
            assert_pad_never_indexes(mtp_chain, arguments, "drafter_kv", "script")


@each_shape
def test_a_block_drafter_keeps_a_word_of_each_hidden_word(num_rows: int, k: int, uniform: bool, padded: bool) -> None:
    for batch in batches(num_rows, k, uniform, padded):
        hidden, before = batch.token_words(), words(batch.rng, batch.num_slots)
        arguments = {"hidden": hidden, "positions": batch.positions, "slots": batch.slots, "drafter_kv": before}
        expected = before.copy()
        for index, offset, token in batch.tokens():
            row = batch.rows[index]
            position = row.computed + offset
            expected[row.cache_slot(position)] = model.kv_word(int(hidden[token]), position, model.DRAFTER_LAYER)
        assert call(dflash_context, **arguments)["drafter_kv"].tolist() == expected.tolist()


@each_shape
def test_every_mask_of_a_block_sees_the_context_and_the_whole_block(
    num_rows: int, k: int, uniform: bool, padded: bool
) -> None:
    for batch in batches(num_rows, k, uniform, padded):
        kept, hidden = kept_of(batch), batch.token_words()
        common = proposing(batch, kept, VOCAB_SIZE)
        for num_proposed in range(k + 1):
            sizes = {"num_proposed": num_proposed, "vocab_size": VOCAB_SIZE}
            found = call(dflash_block, hidden=hidden, **common, **sizes)
            for index, row in enumerate(batch.rows):
                cached = cached_words(common["drafter_kv"], batch, kept, index)
                first, last = len(cached), int(hidden[batch.starts[index] + kept.last[index]])
                ids = [int(common["next_tokens"][index])] + [VOCAB_SIZE] * num_proposed
                vectors = [model.draft_hidden(last, token) for token in ids]
                block = [model.kv_word(vector, first + at, model.DRAFTER_LAYER) for at, vector in enumerate(vectors)]
                raw = []
                for at in range(1, 1 + num_proposed):
                    seen = seen_from(first + at, cached)
                    seen += sum(word * (2 * abs(at - other) + 1) for other, word in enumerate(block))
                    raw.append(model.mix((vectors[at] + seen) & model.MASK))
                assert found["raw"].reshape(batch.num_rows, k)[index, :num_proposed].tolist() == raw
                line = [line_of(common["script"], row.state_slot, first + at) for at in range(1, 1 + num_proposed)]
                assert_proposed(found, index, batch, kept, line)
            assert_scratch(found["drafter_kv"], common["drafter_kv"], batch, kept, 1 + num_proposed)


@pytest.mark.parametrize("num_proposed", [0, 1])
@each_shape
def test_hidden_states_are_written_out_and_the_sampled_token_is_proposed_again(
    num_rows: int, k: int, uniform: bool, padded: bool, num_proposed: int
) -> None:
    for batch in batches(num_rows, k, uniform, padded):
        kept, hidden, before = kept_of(batch), batch.token_words(), words(batch.rng, batch.num_slots)
        count = min(num_proposed, k)
        tokens = next_tokens_of(batch)
        found = call(
            extract_hidden_states,
            hidden=hidden,
            slots=batch.slots,
            next_tokens=tokens,
            valid=batch.field(list(kept.valid)),
            drafter_kv=before,
            draft_tokens=int_poison(batch.num_rows * k),
            num_speculative_tokens=k,
            num_proposed=count,
        )
        expected = before.copy()
        for index, offset, token in batch.tokens():
            expected[batch.rows[index].cache_slot(batch.rows[index].computed + offset)] = hidden[token]
        assert found["drafter_kv"].tolist() == expected.tolist()
        for index in range(len(batch.rows)):
            assert_proposed(found, index, batch, kept, [int(tokens[index])] * count)


@each_shape
def test_each_medusa_head_sees_the_last_kept_hidden_word_and_its_own_number(
    num_rows: int, k: int, uniform: bool, padded: bool
) -> None:
    for batch in batches(num_rows, k, uniform, padded):
        kept, hidden = kept_of(batch), batch.token_words()
        common = proposing(batch, kept, VOCAB_SIZE)
        used = [name for name in modes_of(medusa_heads) if name in common]
        for num_proposed in range(k + 1):
            given = {"hidden": hidden, **{name: common[name] for name in used}, "num_proposed": num_proposed}
            found = call(medusa_heads, **given)
            for index, row in enumerate(batch.rows):
                last = kept.last[index]
                word = int(hidden[batch.starts[index] + last])
                raw = [model.draft_hidden(word, head) for head in range(num_proposed)]
                assert found["raw"].reshape(batch.num_rows, k)[index].tolist() == raw + [0] * (k - num_proposed)
                first = row.computed + last + 2
                proposed = [line_of(common["script"], row.state_slot, first + head) for head in range(num_proposed)]
                assert_proposed(found, index, batch, kept, proposed)
            assert not found["raw"][len(batch.rows) * k :].any()
            assert_pad_never_indexes(medusa_heads, given, "script")


def looked_up(history: list[int], count: int) -> list[int]:
    """Return what follows the longest earlier match of the end of a history; of equally long ones the rightmost."""
    best: tuple[int, int] = (0, 0)
    for end in range(1, len(history)):
        length = 0
        while length < min(NGRAM_MAX, end) and history[end - 1 - length] == history[-1 - length]:
            length += 1
        best = max(best, (length, end))
    follows = history[best[1] : best[1] + count] if best[0] else []
    return follows + [NO_DRAFT] * (count - len(follows))


@pytest.mark.parametrize("bound", [2, 4])
@each_shape
def test_a_search_proposes_what_followed_the_longest_match(
    num_rows: int, k: int, uniform: bool, padded: bool, bound: int
) -> None:
    for batch in batches(num_rows, k, uniform, padded):
        kept, tokens = kept_of(batch), next_tokens_of(batch) % bound
        cache = cache_of(batch, kept, bound)
        for num_proposed in range(k + 1):
            found = call(
                ngram_search,
                next_tokens=tokens,
                positions=batch.positions,
                token_index=token_index(batch, kept),
                valid=batch.field(list(kept.valid)),
                block_table=batch.block_table,
                drafter_kv=cache,
                draft_tokens=int_poison(batch.num_rows * k),
                block_size=BLOCK_SIZE,
                max_blocks=MAX_BLOCKS,
                num_blocks_max=batch.num_blocks_max,
                num_speculative_tokens=k,
                num_proposed=num_proposed,
            )
            for index in range(len(batch.rows)):
                history = [*cached_words(cache, batch, kept, index), int(tokens[index])]
                assert_proposed(found, index, batch, kept, looked_up(history, num_proposed))


@each_shape
def test_a_history_holds_the_id_of_every_token(num_rows: int, k: int, uniform: bool, padded: bool) -> None:
    for batch in batches(num_rows, k, uniform, padded):
        ids, before = batch.token_ids(), words(batch.rng, batch.num_slots)
        expected = before.copy()
        for index, offset, token in batch.tokens():
            expected[batch.rows[index].cache_slot(batch.rows[index].computed + offset)] = ids[token]
        found = call(write_tokens, input_ids=ids, slots=batch.slots, drafter_kv=before)
        assert found["drafter_kv"].tolist() == expected.tolist()


def test_tokens_past_the_last_position_of_a_drafter_have_no_slot() -> None:
    found = call(
        limit_slots,
        positions=integers([3, 4, 5, 0]),
        slots=integers([13, 14, 15, PAD_SLOT]),
        drafter_slots=int_poison(4),
        drafter_max_len=5,
    )
    assert found["drafter_slots"].tolist() == [13, 14, PAD_SLOT, PAD_SLOT]


@pytest.mark.parametrize("num_proposed", [0, 1, 2, 3])
def test_a_row_keeps_its_drafts_as_long_as_all_of_them_have_a_position(num_proposed: int) -> None:
    last = [4, 5, 6, 7, 8]
    found = call(
        limit_drafts,
        positions=integers([*last, 0]),
        token_index=integers([0, 1, 2, 3, 4]),
        draft_tokens=np.arange(15),
        num_speculative_tokens=3,
        num_proposed=num_proposed,
        drafter_max_len=9,
    )
    for row, position in enumerate(last):
        # The last position of the row's block of drafts: its next token is behind the last kept one.
        fits = position + 1 + num_proposed < 9
        expected = list(range(3 * row, 3 * row + 3)) if fits else [NO_DRAFT] * 3
        assert found["draft_tokens"][3 * row : 3 * row + 3].tolist() == expected

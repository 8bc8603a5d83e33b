"""Drafters beside the EAGLE-like one and the draft model: what they cache, and what they propose."""

from tests.workers.kernels.batches import (
    VOCAB_SIZE,
    assert_pad_never_indexes,
    batches,
    call,
    each_shape,
    words,
)
from tests.workers.kernels.calls import modes_of
from tests.workers.kernels.drafting import (
    assert_proposed,
    assert_scratch,
    cached_words,
    line_of,
    proposing,
    seen_from,
)
from tests.workers.kernels.test_draft import kept_of, token_index
from workers.kernels.dflash.vectorised import dflash_block, dflash_context
from workers.kernels.medusa.vectorised import medusa_heads
from workers.kernels.mtp.vectorised import mtp_chain, mtp_pass
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

"""The draft model: the target's layers on caches of its own, one token after the other."""

import pytest

from tests.workers.kernels.batches import (
    BLOCK_SIZE,
    MAX_BLOCKS,
    VOCAB_SIZE,
    batches,
    call,
    each_shape,
    int_poison,
    word_poison,
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
from tests.workers.kernels.test_recurrent_update import Caches
from workers.kernels.draft_model.vectorised import draft_model_chain, draft_model_pass
from workers.kernels.recurrent_update.vectorised import recurrent_update
from workers.record import model

WIDTH = 3


@each_shape
def test_a_draft_model_caches_what_the_target_does_and_no_rejected_draft(
    num_rows: int, k: int, uniform: bool, padded: bool
) -> None:
    for batch in batches(num_rows, k, uniform, padded):
        kept, ids, caches = kept_of(batch), batch.token_ids(), Caches(batch, WIDTH)
        before = word_poison(batch.num_slots)
        for row in batch.rows:
            for position in range(row.computed):
                before[row.cache_slot(position)] = words(batch.rng, 1)[0]
        tables = {
            "num_computed": batch.num_computed,
            "query_start": batch.query_start,
            "num_scheduled": batch.num_scheduled,
            "num_drafts": batch.num_drafts,
            "state_slot": batch.state_slot,
            "accepted": batch.field(caches.accepted),
        }
        queries = max(row.n for row in batch.rows)
        found = call(
            draft_model_pass,
            input_ids=ids,
            positions=batch.positions,
            slots=batch.slots,
            token_row=batch.token_row,
            token_index=token_index(batch, kept),
            block_table=batch.block_table,
            **tables,
            drafter_hidden=word_poison(batch.num_tokens),
            drafter_attended=word_poison(batch.num_tokens),
            drafter_states=caches.states,
            drafter_conv=caches.conv,
            drafter_kv=before,
            block_size=BLOCK_SIZE,
            max_blocks=MAX_BLOCKS,
            num_blocks_max=batch.num_blocks_max,
            num_queries_max=queries,
            num_speculative_tokens=k,
            conv_width=WIDTH,
        )
        expected, entering = before.copy(), word_poison(batch.num_tokens)
        for index, offset, token in batch.tokens():
            row = batch.rows[index]
            if offset > kept.last[index]:
                continue
            position, hidden = row.computed + offset, model.embed(int(ids[token]))
            expected[row.cache_slot(position)] = model.kv_word(hidden, position, 0)
            cached = [int(expected[row.cache_slot(at)]) for at in range(position + 1)]
            entering[token] = model.after_attention(hidden, seen_from(position, cached))
        assert found["drafter_kv"].tolist() == expected.tolist()
        alone = call(
            recurrent_update,
            hidden=entering,
            **tables,
            states=caches.states,
            conv=caches.conv,
            num_queries_max=queries,
            num_speculative_tokens=k,
            conv_width=WIDTH,
        )
        for index, row in enumerate(batch.rows):
            # As far as tokens are kept, the states are those of the recurrent layer alone.
            counts = range(1 + max(1, kept.valid[index]))
            states = [row.state_slot * (2 + k) + count for count in counts]
            assert found["drafter_states"][states].tolist() == alone["states"][states].tolist()
            tokens = [batch.starts[index] + offset for offset in range(kept.last[index] + 1)]
            assert found["drafter_hidden"][tokens].tolist() == alone["hidden"][tokens].tolist()


@pytest.mark.parametrize("width", [0, WIDTH])
@each_shape
def test_a_draft_model_predicts_the_argmax_behind_each_of_its_drafts_and_the_script_spoils_it(
    num_rows: int, k: int, uniform: bool, padded: bool, width: int
) -> None:
    for batch in batches(num_rows, k, uniform, padded):
        kept, caches = kept_of(batch), Caches(batch, WIDTH)
        after = [int(batch.rng.integers(1 + k + 1)) for _ in batch.rows]
        for row, count in zip(batch.rows, after, strict=True):
            caches.states[row.state_slot * (2 + k) + count] = words(batch.rng, 1)[0]
            start = row.state_slot * (WIDTH + k) + count
            caches.conv[start : start + WIDTH - 1] = words(batch.rng, WIDTH - 1)
        common = proposing(batch, kept, 2)
        outputs = {"own": int_poison(batch.num_rows * k)}
        caches_of_it = {"drafter_states": caches.states, "drafter_conv": caches.conv}
        sizes = {"vocab_size": VOCAB_SIZE, "conv_width": width}
        for num_proposed in range(k + 1):
            given = {**common, "accepted": batch.field(after), **caches_of_it, **outputs, **sizes}
            given["num_proposed"] = num_proposed
            arguments = {name: given[name] for name in modes_of(draft_model_chain)}
            found = call(draft_model_chain, **arguments)
            for index, row in enumerate(batch.rows):
                if not kept.valid[index]:
                    assert_proposed(found, index, batch, kept, [])
                    continue
                cached = cached_words(common["drafter_kv"], batch, kept, index)
                start = row.state_slot * (WIDTH + k) + after[index]
                state = int(caches.states[row.state_slot * (2 + k) + after[index]])
                window = caches.conv[start : start + WIDTH - 1].tolist()
                token, raw, own, proposed = int(common["next_tokens"][index]), [], [], []
                for _ in range(num_proposed):
                    hidden, position = model.embed(token), len(cached)
                    cached.append(model.kv_word(hidden, position, 0))
                    hidden = model.after_attention(hidden, seen_from(position, cached))
                    if width:
                        window = [*window, hidden]
                        state = model.advance(state, window[-WIDTH:])
                        hidden = model.after_recurrent(hidden, state)
                    logits = [model.logit(hidden, each) for each in range(VOCAB_SIZE)]
                    raw.append(hidden)
                    own.append(logits.index(max(logits)))
                    token = (own[-1] + line_of(common["script"], row.state_slot, position + 1)) % VOCAB_SIZE
                    proposed.append(token)
                assert found["raw"].reshape(batch.num_rows, k)[index, :num_proposed].tolist() == raw
                assert found["own"].reshape(batch.num_rows, k)[index, :num_proposed].tolist() == own
                assert_proposed(found, index, batch, kept, proposed)
            assert_scratch(found["drafter_kv"], common["drafter_kv"], batch, kept, num_proposed)

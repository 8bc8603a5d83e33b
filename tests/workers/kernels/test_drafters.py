"""Every drafter but the EAGLE-like one: what it caches and what it proposes, one token after the other."""

from inspect import signature
from typing import Any

import numpy as np
import pytest

from tests.workers.kernels.batches import (
    BLOCK_SIZE,
    MAX_BLOCKS,
    MAX_MODEL_LEN,
    VOCAB_SIZE,
    Array,
    Batch,
    assert_pad_never_indexes,
    batches,
    call,
    each_shape,
    int_poison,
    integers,
    word_poison,
    words,
)
from tests.workers.kernels.test_draft import Kept, kept_of, token_index
from tests.workers.kernels.test_recurrent_update import Caches
from workers import model
from workers.kernels.dflash import dflash_block, dflash_context
from workers.kernels.draft_model import draft_model_chain, draft_model_pass
from workers.kernels.drafter_limit import limit_drafts, limit_slots
from workers.kernels.extract_hidden_states import extract_hidden_states
from workers.kernels.mtp import mtp_chain, mtp_pass
from workers.kernels.ngram import NGRAM_MAX, ngram_search, write_tokens
from workers.kernels.recurrent_update import recurrent_update
from workers.kernels.signature import NO_DRAFT, PAD_SLOT

WIDTH = 3


def seen_from(position: int, cached: list[int]) -> int:
    """Return what attention at a position sees of words at positions from 0 on."""
    return sum(word * (2 * (position - at) + 1) for at, word in enumerate(cached)) & model.MASK


def next_tokens_of(batch: Batch) -> Array:
    """Return a valid token for each real row, poison for padding."""
    tokens = int_poison(batch.num_rows)
    tokens[: len(batch.rows)] = batch.rng.integers(0, VOCAB_SIZE, len(batch.rows))
    return tokens


def cache_of(batch: Batch, kept: Kept, bound: int = 1 << 64) -> Array:
    """Return a cache with words at the kept positions of each row, and poison elsewhere."""
    cache = word_poison(batch.num_slots)
    for row, last in zip(batch.rows, kept.last, strict=True):
        for position in range(row.computed + last + 1):
            cache[row.cache_slot(position)] = batch.rng.integers(0, bound, dtype=np.uint64)
    return cache


def cached_words(cache: Array, batch: Batch, kept: Kept, index: int) -> list[int]:
    row = batch.rows[index]
    return [int(cache[row.cache_slot(at)]) for at in range(row.computed + kept.last[index] + 1)]


def script_of(batch: Batch, bound: int) -> Array:
    script = batch.rng.integers(0, bound, batch.num_state_slots * MAX_MODEL_LEN)
    script[-MAX_MODEL_LEN:] = 1 << 40
    return script


def line_of(script: Array, slot: int, position: int) -> int:
    return int(script[slot * MAX_MODEL_LEN + min(position, MAX_MODEL_LEN - 1)])


def proposing(batch: Batch, kept: Kept, script_bound: int) -> dict[str, Any]:
    """Return the arguments that all chains have in common, in their order."""
    return {
        "next_tokens": next_tokens_of(batch),
        "positions": batch.positions,
        "token_index": token_index(batch, kept),
        "num_scheduled": batch.num_scheduled,
        "valid": batch.field(list(kept.valid)),
        "state_slot": batch.state_slot,
        "block_table": batch.block_table,
        "script": script_of(batch, script_bound),
        "drafter_kv": cache_of(batch, kept),
        "raw": word_poison(batch.num_rows * batch.k),
        "draft_tokens": int_poison(batch.num_rows * batch.k),
        "block_size": BLOCK_SIZE,
        "max_blocks": MAX_BLOCKS,
        "num_blocks_max": batch.num_blocks_max,
        "max_model_len": MAX_MODEL_LEN,
        "num_speculative_tokens": batch.k,
    }


def assert_proposed(found: Any, index: int, batch: Batch, kept: Kept, expected: list[int]) -> None:
    """Check the drafts of a row: NO_DRAFT behind what is proposed, and everywhere without a valid token."""
    tokens = found["draft_tokens"].reshape(batch.num_rows, batch.k)[index].tolist()
    expected = expected if kept.valid[index] else []
    assert tokens == expected + [NO_DRAFT] * (batch.k - len(expected))


def assert_scratch(found: Array, before: Array, batch: Batch, kept: Kept, count: int) -> None:
    """Check that nothing was written but `count` positions behind each row's last kept token."""
    scratch = set()
    for row, last in zip(batch.rows, kept.last, strict=True):
        first = row.computed + last + 1
        stop = min(first + count, MAX_MODEL_LEN, len(row.blocks) * BLOCK_SIZE)
        scratch |= {row.cache_slot(position) for position in range(first, stop)}
    others = [slot for slot in range(batch.num_slots) if slot not in scratch]
    assert found[others].tolist() == before[others].tolist()


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
            arguments = {name: given[name] for name in signature(draft_model_chain).parameters}
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

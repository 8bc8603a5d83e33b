"""The drafter: its first pass over the target's tokens, and the chain of single tokens behind it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.workers.kernels.batches import (
    BLOCK_SIZE,
    INT_POISON,
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
from workers.kernels.eagle.vectorised import draft_chain, draft_first_pass
from workers.kernels.sentinels import NO_DRAFT, POISON
from workers.record import model


@dataclass(frozen=True, slots=True)
class Kept:
    """What was sampled: the valid tokens of each real row, and the index in the row of its last kept token."""

    valid: tuple[int, ...]
    last: tuple[int, ...]


def kept_of(batch: Batch) -> Kept:
    """Draw how many tokens each row keeps; chunks keep all of theirs, some rows have no valid token."""
    valid, last = [], []
    for row in batch.rows:
        count = 0 if row.discard or batch.rng.integers(6) == 0 else int(batch.rng.integers(1, row.d + 2))
        valid.append(count)
        last.append(row.n - 1 if row.discard else row.first + max(count - 1, 0))
    return Kept(tuple(valid), tuple(last))


def token_index(batch: Batch, kept: Kept) -> Array:
    return batch.field([batch.starts[index] + last for index, last in enumerate(kept.last)])


@each_shape
def test_the_first_pass_pairs_each_kept_token_with_the_one_that_follows_it(
    num_rows: int, k: int, uniform: bool, padded: bool
) -> None:
    for batch in batches(num_rows, k, uniform, padded):
        kept, ids, hidden = kept_of(batch), batch.token_ids(), batch.token_words()
        next_tokens = int_poison(batch.num_rows)
        next_tokens[: len(batch.rows)] = batch.rng.integers(0, VOCAB_SIZE, len(batch.rows))
        arguments = {
            "hidden": hidden,
            "input_ids": ids,
            "positions": batch.positions,
            "slots": batch.slots,
            "token_index": token_index(batch, kept),
            "next_tokens": next_tokens,
            "num_scheduled": batch.num_scheduled,
            "drafter_hidden": word_poison(batch.num_tokens),
            "drafter_kv": words(batch.rng, batch.num_slots),
        }
        found = call(draft_first_pass, **arguments)
        scratch = set()
        for index, offset, token in batch.tokens():
            row = batch.rows[index]
            slot = row.cache_slot(row.computed + offset)
            scratch.add(slot)
            if offset <= kept.last[index]:
                following = int(next_tokens[index] if offset == kept.last[index] else ids[token + 1])
                vector = model.draft_hidden(int(hidden[token]), following)
                assert found["drafter_hidden"][token] == vector
                assert found["drafter_kv"][slot] == model.kv_word(vector, row.computed + offset, model.DRAFTER_LAYER)
        others = [slot for slot in range(batch.num_slots) if slot not in scratch]
        assert found["drafter_kv"][others].tolist() == arguments["drafter_kv"][others].tolist()
        assert_pad_never_indexes(draft_first_pass, arguments, "drafter_kv")


def chain_arguments(batch: Batch, kept: Kept, num_proposed: int) -> dict[str, Any]:
    """Return arguments of draft_chain, poisoned where nothing may be read."""
    drafter_hidden, drafter_kv = word_poison(batch.num_tokens), word_poison(batch.num_slots)
    for index, row in enumerate(batch.rows):
        drafter_hidden[batch.starts[index] + kept.last[index]] = words(batch.rng, 1)[0]
        for position in range(row.computed + kept.last[index] + 1):
            drafter_kv[row.cache_slot(position)] = words(batch.rng, 1)[0]
    script = batch.rng.integers(0, VOCAB_SIZE, batch.num_state_slots * MAX_MODEL_LEN)
    script[-MAX_MODEL_LEN:] = INT_POISON
    return {
        "drafter_hidden": drafter_hidden,
        "positions": batch.positions,
        "token_index": token_index(batch, kept),
        "num_scheduled": batch.num_scheduled,
        "valid": batch.field(list(kept.valid)),
        "state_slot": batch.state_slot,
        "block_table": batch.block_table,
        "script": script,
        "drafter_kv": drafter_kv,
        "raw": word_poison(batch.num_rows * batch.k),
        "draft_tokens": int_poison(batch.num_rows * batch.k),
        "block_size": BLOCK_SIZE,
        "max_blocks": MAX_BLOCKS,
        "num_blocks_max": batch.num_blocks_max,
        "max_model_len": MAX_MODEL_LEN,
        "num_speculative_tokens": batch.k,
        "num_proposed": num_proposed,
    }


def chain_of(
    vector: int, cached: list[int], script: list[int], num_proposed: int, embed_from: int
) -> tuple[list[int], list[int]]:
    """Return raw words and proposed tokens of one row, one token after the other; `cached` ends at the last kept."""
    raw: list[int] = []
    proposed: list[int] = []
    for _ in range(num_proposed):
        if raw:
            vector = model.draft_hidden(raw[-1], proposed[-1])
            cached = [*cached, model.kv_word(vector, len(cached), model.DRAFTER_LAYER)]
        position = len(cached) - 1
        seen = sum(word * (2 * (position - j) + 1) for j, word in enumerate(cached)) & model.MASK
        raw.append(model.after_attention(vector, seen))
        proposed.append(script[min(embed_from + len(proposed), len(script) - 1)])
    return raw, proposed


@each_shape
def test_the_chain_proposes_the_script_and_computes_what_one_token_after_the_other_would(
    num_rows: int, k: int, uniform: bool, padded: bool
) -> None:
    for batch in batches(num_rows, k, uniform, padded):
        kept = kept_of(batch)
        for num_proposed in range(k + 1):
            arguments = chain_arguments(batch, kept, num_proposed)
            found = call(draft_chain, **arguments)
            raw, tokens = (found[name].reshape(batch.num_rows, k) for name in ("raw", "draft_tokens"))
            assert tokens[len(batch.rows) :].ravel().tolist() == [NO_DRAFT] * ((batch.num_rows - len(batch.rows)) * k)
            for index, row in enumerate(batch.rows):
                if not kept.valid[index]:
                    assert tokens[index].tolist() == [NO_DRAFT] * k
                    continue
                last = row.computed + kept.last[index]
                vector = int(arguments["drafter_hidden"][batch.starts[index] + kept.last[index]])
                cached = [int(arguments["drafter_kv"][row.cache_slot(j)]) for j in range(last + 1)]
                script = arguments["script"][row.state_slot * MAX_MODEL_LEN :][:MAX_MODEL_LEN].tolist()
                expected = chain_of(vector, cached, script, num_proposed, last + 2)
                assert raw[index].tolist() == expected[0] + [0] * (k - num_proposed)
                assert tokens[index].tolist() == expected[1] + [NO_DRAFT] * (k - num_proposed)
            assert_pad_never_indexes(draft_chain, arguments, "drafter_kv", "script")


@each_shape
def test_the_chain_writes_nothing_but_the_positions_behind_the_last_kept_token(
    num_rows: int, k: int, uniform: bool, padded: bool
) -> None:
    for batch in batches(num_rows, k, uniform, padded):
        kept = kept_of(batch)
        for num_proposed in range(k + 1):
            arguments = chain_arguments(batch, kept, num_proposed)
            found = call(draft_chain, **arguments)["drafter_kv"]
            scratch = set()
            for row, last in zip(batch.rows, kept.last, strict=True):
                first = row.computed + last + 1
                stop = min(first + max(num_proposed - 1, 0), MAX_MODEL_LEN, len(row.blocks) * BLOCK_SIZE)
                scratch |= {row.cache_slot(position) for position in range(first, stop)}
            others = [slot for slot in range(batch.num_slots) if slot not in scratch]
            assert found[others].tolist() == arguments["drafter_kv"][others].tolist()


def at_the_limit(last: int, num_blocks: int, num_proposed: int) -> tuple[dict[str, Array], list[int], list[int]]:
    """Run the chain of one row whose last kept token has this position; return its outputs, its cache and script."""
    rng = np.random.default_rng(last)
    cached, script, vector = words(rng, last + 1), rng.integers(0, VOCAB_SIZE, MAX_MODEL_LEN), words(rng, 1)
    drafter_kv = word_poison((MAX_BLOCKS + 1) * BLOCK_SIZE)
    drafter_kv[: last + 1] = cached
    found = call(
        draft_chain,
        drafter_hidden=vector,
        positions=integers([last]),
        token_index=integers([0]),
        num_scheduled=integers([1]),
        valid=integers([1]),
        state_slot=integers([0]),
        block_table=integers([*range(num_blocks), *[-1] * (MAX_BLOCKS - num_blocks)]),
        script=script,
        drafter_kv=drafter_kv,
        raw=word_poison(4),
        draft_tokens=int_poison(4),
        block_size=BLOCK_SIZE,
        max_blocks=MAX_BLOCKS,
        num_blocks_max=num_blocks,
        max_model_len=MAX_MODEL_LEN,
        num_speculative_tokens=4,
        num_proposed=num_proposed,
    )
    raw, proposed = chain_of(int(vector[0]), cached.tolist(), script.tolist(), num_proposed, last + 2)
    return found, raw, proposed


@pytest.mark.parametrize("last", range(MAX_MODEL_LEN - 5, MAX_MODEL_LEN))
def test_a_chain_that_runs_past_max_model_len_writes_up_to_it_and_proposes_the_last_of_the_script(last: int) -> None:
    found, raw, proposed = at_the_limit(last, MAX_BLOCKS, 4)
    assert found["raw"].tolist() == raw
    assert found["draft_tokens"].tolist() == proposed
    written = np.flatnonzero(found["drafter_kv"] != np.uint64(POISON)).tolist()
    assert written == list(range(min(last + 4, MAX_MODEL_LEN)))


def test_a_chain_that_runs_out_of_its_block_table_writes_up_to_its_end() -> None:
    found, raw, proposed = at_the_limit(last=4, num_blocks=2, num_proposed=4)
    assert (found["raw"].tolist(), found["draft_tokens"].tolist()) == (raw, proposed)
    assert np.flatnonzero(found["drafter_kv"] != np.uint64(POISON)).tolist() == list(range(6))

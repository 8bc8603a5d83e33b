"""The recurrent layer: one token after the other, kept for every position that is verified."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.kernels.batches import (
    Array,
    Batch,
    Row,
    assert_pad_never_indexes,
    batches,
    call,
    each_shape,
    integers,
    word_poison,
    words,
)
from workers.kernels.recurrent_update.vectorised import recurrent_update
from workers.kernels.sentinels import PAD_STATE_SLOT, POISON
from workers.record import model

WIDTHS = (2, 3, 4)
each_width = pytest.mark.parametrize("width", WIDTHS)


def run_over(state: int, history: list[int], inputs: list[int], width: int) -> tuple[list[int], list[int], list[int]]:
    """Return the states before and after each input, all inputs seen, and the hidden words behind the layer."""
    states, seen, hidden = [state], list(history), []
    for word in inputs:
        seen.append(word)
        states.append(model.advance(states[-1], seen[-width:]))
        hidden.append(model.after_recurrent(word, states[-1]))
    return states, seen, hidden


class Caches:
    """The states and windows of every slot, poisoned but for what the rows of a batch may read."""

    def __init__(self, batch: Batch, width: int) -> None:
        self.per_state, self.per_window = 2 + batch.k, width + batch.k
        self.states = word_poison(batch.num_state_slots * self.per_state)
        self.conv = word_poison(batch.num_state_slots * self.per_window)
        self.accepted = [int(batch.rng.integers(self.per_state)) for _ in batch.rows]
        for row, accepted in zip(batch.rows, self.accepted, strict=True):
            if row.computed:
                self.states[row.state_slot * self.per_state + accepted] = words(batch.rng, 1)[0]
                start = row.state_slot * self.per_window + accepted
                self.conv[start : start + width - 1] = words(batch.rng, width - 1)

    def committed(self, row: Row, accepted: int, width: int) -> tuple[int, list[int]]:
        """Return state and window a row starts from: zero, if it has computed nothing."""
        if not row.computed:
            return 0, [0] * (width - 1)
        start = row.state_slot * self.per_window + accepted
        return int(self.states[row.state_slot * self.per_state + accepted]), self.conv[
            start : start + width - 1
        ].tolist()


def update_arguments(batch: Batch, caches: Caches, width: int) -> dict[str, Any]:
    return {
        "hidden": batch.token_words(),
        "num_computed": batch.num_computed,
        "query_start": batch.query_start,
        "num_scheduled": batch.num_scheduled,
        "num_drafts": batch.num_drafts,
        "state_slot": batch.state_slot,
        "accepted": batch.field(caches.accepted),
        "states": caches.states,
        "conv": caches.conv,
        "num_queries_max": max(row.n for row in batch.rows),
        "num_speculative_tokens": batch.k,
        "conv_width": width,
    }


def expected_of(batch: Batch, caches: Caches, hidden: Array, width: int) -> dict[str, list[int]]:
    """Run each row by itself, token by token."""
    states, conv, after = caches.states.tolist(), caches.conv.tolist(), hidden.tolist()
    for index, (row, accepted) in enumerate(zip(batch.rows, caches.accepted, strict=True)):
        start = batch.starts[index]
        state, history = caches.committed(row, accepted, width)
        kept, seen, after[start : start + row.n] = run_over(state, history, after[start : start + row.n], width)
        for position in range(row.d + 2):
            num_seen = row.first + position
            states[row.state_slot * caches.per_state + position] = kept[num_seen]
            at = row.state_slot * caches.per_window + position
            conv[at : at + width - 1] = seen[num_seen : num_seen + width - 1]
    return {"states": states, "conv": conv, "hidden": after}


def defined(batch: Batch, caches: Caches, found: dict[str, Any], width: int) -> dict[str, list[int]]:
    """Leave out what no accepted count of this step leads to: a slot keeps 2 + d states and W + d inputs."""
    scratch: dict[str, set[int]] = {"states": set(), "conv": set(), "hidden": set()}
    for row in batch.rows:
        slot = row.state_slot
        scratch["states"] |= set(range(slot * caches.per_state + 2 + row.d, (slot + 1) * caches.per_state))
        scratch["conv"] |= set(range(slot * caches.per_window + width + row.d, (slot + 1) * caches.per_window))
    return {
        name: [int(word) for index, word in enumerate(values) if index not in scratch[name]]
        for name, values in found.items()
    }


@each_shape
@each_width
def test_each_row_advances_token_by_token_and_keeps_a_state_for_every_verified_position(
    num_rows: int, k: int, uniform: bool, padded: bool, width: int
) -> None:
    for batch in batches(num_rows, k, uniform, padded):
        caches = Caches(batch, width)
        arguments = update_arguments(batch, caches, width)
        expected = expected_of(batch, caches, arguments["hidden"], width)
        found = call(recurrent_update, **arguments)
        assert defined(batch, caches, found, width) == defined(batch, caches, expected, width)
        assert_pad_never_indexes(recurrent_update, arguments, "states", "conv")


@each_shape
def test_longer_rows_of_other_batches_change_nothing(num_rows: int, k: int, uniform: bool, padded: bool) -> None:
    for batch in batches(num_rows, k, uniform, padded, 2):
        caches = Caches(batch, 3)
        arguments = update_arguments(batch, caches, 3)
        longest = arguments["num_queries_max"]
        found = [call(recurrent_update, **{**arguments, "num_queries_max": longest + more}) for more in (0, 1, 5)]
        assert defined(batch, caches, found[0], 3) == defined(batch, caches, found[1], 3)
        assert defined(batch, caches, found[0], 3) == defined(batch, caches, found[2], 3)


class Sequence:
    """One row in slot 1 of 3, fed as a test pleases; the other slots hold poison."""

    def __init__(self, k: int, width: int) -> None:
        self.k, self.width, self.num_computed = k, width, 0
        self.states, self.conv = word_poison(3 * (2 + k)), word_poison(3 * (width + k))

    def feed(self, inputs: list[int], d: int, accepted: int) -> list[int]:
        """Run over some inputs, the last d of them drafts, and return the hidden words behind the layer."""
        assert all(word == POISON for word in (*self.states[-(2 + self.k) :], *self.conv[-(self.width + self.k) :]))
        found = call(
            recurrent_update,
            hidden=np.array(inputs, dtype=np.uint64),
            num_computed=integers([self.num_computed]),
            query_start=integers([0]),
            num_scheduled=integers([len(inputs)]),
            num_drafts=integers([d]),
            state_slot=integers([1]),
            accepted=integers([accepted]),
            states=self.states,
            conv=self.conv,
            num_queries_max=len(inputs),
            num_speculative_tokens=self.k,
            conv_width=self.width,
        )
        self.states, self.conv = found["states"], found["conv"]
        self.num_computed += len(inputs) - d
        return [int(word) for word in found["hidden"]]

    def committed(self, accepted: int) -> tuple[int, list[int]]:
        """Return the state and window that belong to an accepted count."""
        start = self.width + self.k + accepted
        return int(self.states[2 + self.k + accepted]), self.conv[start : start + self.width - 1].tolist()


WORDS = st.lists(st.integers(0, model.MASK), min_size=1, max_size=12)


@settings(max_examples=150, deadline=None, database=None, derandomize=True)
@given(WORDS, st.lists(st.integers(1, 5), max_size=12), st.sampled_from(WIDTHS), st.sampled_from((0, 1, 3)))
def test_any_chunks_of_a_sequence_give_the_states_of_one_token_at_a_time(
    inputs: list[int], chunks: list[int], width: int, k: int
) -> None:
    single, chunked = Sequence(k, width), Sequence(k, width)
    expected = [word for each in inputs for word in single.feed([each], d=0, accepted=1)]
    found: list[int] = []
    for size in [*chunks, len(inputs)]:
        if chunk := inputs[len(found) : len(found) + size]:
            found += chunked.feed(chunk, d=0, accepted=1)
    states, seen, hidden = run_over(0, [0] * (width - 1), inputs, width)
    assert found == expected == hidden
    assert chunked.committed(1) == single.committed(1) == (states[-1], seen[len(seen) - width + 1 :])


@settings(max_examples=150, deadline=None, database=None, derandomize=True)
@given(WORDS, WORDS, st.data(), st.sampled_from(WIDTHS), st.sampled_from((1, 3)))
def test_every_accepted_count_leads_to_the_state_after_so_many_verified_tokens(
    before: list[int], after: list[int], data: st.DataObject, width: int, k: int
) -> None:
    d = data.draw(st.integers(0, k))
    verified = data.draw(st.lists(st.integers(0, model.MASK), min_size=1 + d, max_size=1 + d))
    for accepted in range(d + 2):
        sequence = Sequence(k, width)
        sequence.feed([*before, verified[0]] if len(before) % 2 else before, d=0, accepted=1)
        known = [*before, verified[0]] if len(before) % 2 else before
        sequence.feed(verified, d=d, accepted=1)
        kept = [*known, *verified[:accepted]]
        states, seen, _ = run_over(0, [0] * (width - 1), kept, width)
        assert sequence.committed(accepted) == (states[-1], seen[len(seen) - width + 1 :])
        hidden = sequence.feed(after, d=0, accepted=accepted)
        assert hidden == run_over(states[-1], seen, after, width)[2]


@each_width
def test_a_row_that_has_computed_nothing_starts_from_zero_whatever_its_slot_and_count_hold(width: int) -> None:
    inputs = [3, 1, 4, 1, 5]
    expected = run_over(0, [0] * (width - 1), inputs, width)[2]
    for accepted in range(5):
        assert Sequence(3, width).feed(inputs, d=2, accepted=accepted) == expected


def test_a_batch_of_padding_alone_changes_nothing() -> None:
    rng = np.random.default_rng(0)
    arguments: dict[str, Any] = {
        "hidden": words(rng, 4),
        "num_computed": integers([0, 0]),
        "query_start": integers([0, 2]),
        "num_scheduled": integers([0, 0]),
        "num_drafts": integers([0, 0]),
        "state_slot": integers([PAD_STATE_SLOT] * 2),
        "accepted": integers([0, 0]),
        "states": words(rng, 6),
        "conv": words(rng, 8),
        "num_queries_max": 2,
        "num_speculative_tokens": 1,
        "conv_width": 3,
    }
    found = call(recurrent_update, **arguments)
    for name, values in found.items():
        assert values.tolist() == arguments[name].tolist()

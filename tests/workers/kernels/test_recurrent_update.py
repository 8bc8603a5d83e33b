"""The recurrent layer processes tokens one by one, and stores each verified one's state."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.kernels.batches import call, integers, word_poison
from workers.kernels.recurrent_update.numpy import recurrent_update
from workers.kernels.sentinels import POISON
from workers.record import model

WIDTHS = (2, 3, 4)
each_width = pytest.mark.parametrize("width", WIDTHS)


def run_over(state: int, history: list[int], inputs: list[int], width: int) -> tuple[list[int], list[int], list[int]]:
    """Return the states before and after each input, all inputs, and the layer's hidden states."""
    states, seen, hidden = [state], list(history), []
    for word in inputs:
        seen.append(word)
        states.append(model.advance(states[-1], seen[-width:]))
        hidden.append(model.after_recurrent(word, states[-1]))
    return states, seen, hidden


class Sequence:
    """One row in slot 1 of 3; the other slots hold poison."""

    def __init__(self, k: int, width: int) -> None:
        self.k, self.width, self.num_computed = k, width, 0
        self.states, self.conv = word_poison(3 * (2 + k)), word_poison(3 * (width + k))

    def feed(self, inputs: list[int], d: int, accepted: int) -> list[int]:
        """Process inputs with d draft tokens at the end, and return the layer's hidden states."""
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
        """Return the state and window for an accepted count."""
        start = self.width + self.k + accepted
        return int(self.states[2 + self.k + accepted]), self.conv[start : start + self.width - 1].tolist()


WORDS = st.lists(st.integers(0, model.MASK), min_size=1, max_size=12)


@settings(max_examples=150)
@given(WORDS, st.lists(st.integers(1, 5), max_size=12), st.sampled_from(WIDTHS), st.sampled_from((0, 1, 3)))
def test_recurrent_states_are_the_same_for_all_prefill_chunks(
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


@settings(max_examples=150)
@given(WORDS, WORDS, st.data(), st.sampled_from(WIDTHS), st.sampled_from((1, 3)))
def test_accepted_count_selects_the_state_after_that_many_tokens(
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
def test_new_row_starts_from_zero_state(width: int) -> None:
    inputs = [3, 1, 4, 1, 5]
    expected = run_over(0, [0] * (width - 1), inputs, width)[2]
    for accepted in range(5):
        assert Sequence(3, width).feed(inputs, d=2, accepted=accepted) == expected

"""Attended tokens: entries of a request's own prefix are passed over, whatever else lies there is reported."""

from collections.abc import Sequence
from typing import Any

import pytest

from scenarios.spec import PRODUCER
from workers.judge.attended_tokens import AttendedTokens
from workers.judge.judge import End
from workers.record.evidence import Difference, Fact
from workers.record.observation import Observation

SIZE = 2
PROMPT = [5, 6, 7, 8, 9]


def opened(state_sizes: Sequence[int] = ()) -> Observation:
    return Observation("opened", -1, (), {"vocab_size": 32, "block_size": SIZE, "state_sizes": list(state_sizes)})


def step(
    number: int,
    request: int,
    tokens: Sequence[int],
    first: int,
    table: list[int],
    begins: bool,
    *,
    states: Sequence[list[int]] = (),
    drafts: int = 0,
) -> list[Observation]:
    """Return the plan and the inputs of a step of one request, which computes its tokens from the first on.

    Of each group of layers with states it has blocks for `states`; its last tokens may be `drafts`.
    """
    begun = [(request, list(tokens))] if begins else []
    planned = {"scheduled_computed": [first], "begun": begun, "states": [(request, list(states))]}
    positions = list(range(first, len(tokens)))
    inputs = {
        "starts": [0, len(positions)],
        "positions": positions,
        "input_ids": list(tokens[first:]),
        "slots": [table[position // SIZE] * SIZE + position % SIZE for position in positions],
        "tables": [table],
        "drafts": [drafts],
    }
    return [Observation("scheduled", number, (request,), planned), Observation("inputs", number, (request,), inputs)]


def copied(
    of: str,
    blocks: list[int],
    slots: list[int],
    lost: Sequence[int] = (),
    step: int = 0,
    now: bool = False,
    num_states: int = 0,
) -> Any:
    values = {"number": 0, "phase": "copies", "of": of, "is_synchronous": now, "num_states": num_states}
    return Observation("transfer", step, (0,), {**values, "blocks": blocks, "slots": slots, "lost": list(lost)})


def stored(blocks: list[int], tokens: list[int], first: int = 0) -> Observation:
    """Return what is told of blocks of the first request, from an index of its table on, when they are copied."""
    indexes = list(range(first, first + len(blocks)))
    return Observation("stored", 0, (0,), {"blocks": blocks, "indexes": indexes, "tokens": tokens})


def judged(seen: Sequence[Observation], state_sizes: Sequence[int] = ()) -> Difference | None:
    judge = AttendedTokens()
    judge.see_log([opened(state_sizes), *seen])
    return judge.at_end(End(1, {}))


def test_tokens_that_were_stored_and_loaded_are_a_request_s_own() -> None:
    first = [*step(0, 0, PROMPT, 0, [1, 2, 3], True), copied("store", [1, 2], [0, 1])]
    assert judged([*first, copied("load", [4, 5], [0, 1]), *step(1, 1, PROMPT, 4, [4, 5, 6], True)]) is None


def test_blocks_that_are_loaded_in_each_other_s_places_are_found() -> None:
    first = [*step(0, 0, PROMPT, 0, [1, 2, 3], True), copied("store", [1, 2], [0, 1])]
    found = judged([*first, copied("load", [4, 5], [1, 0]), *step(1, 1, PROMPT, 4, [4, 5, 6], True)])
    assert found is not None
    assert (found.request, found.position) == ("submit 1", 0)
    assert isinstance(found.actual, Fact)
    assert found.actual.values == {"token": 7, "position": 2}


def test_what_was_stored_before_it_was_computed_is_found_where_it_is_loaded() -> None:
    first = [copied("store", [1, 2], [0, 1]), *step(0, 0, PROMPT, 0, [1, 2, 3], True)]
    found = judged([*first, copied("load", [4, 5], [0, 1]), *step(1, 1, PROMPT, 4, [4, 5, 6], True)])
    assert found is not None
    assert found.actual == Fact(kind="entry_unwritten")


def test_what_was_zeroed_before_it_was_stored_is_found_where_it_is_loaded() -> None:
    first, store = step(0, 0, PROMPT, 0, [1, 2, 3], True), copied("store", [1, 2], [0, 1])
    again = [copied("load", [4, 5], [0, 1]), *step(1, 1, PROMPT, 4, [4, 5, 6], True)]
    zeroed = Observation("zeroed", 1, (), {"blocks": [2]})
    assert judged([*first, store, zeroed, *again]) is None
    found = judged([*first, zeroed, store, *again])
    assert found is not None
    assert (found.position, found.actual) == (2, Fact(kind="entry_unwritten"))


def test_a_state_whose_block_was_zeroed_is_found_where_a_request_goes_on_from_it() -> None:
    first = step(0, 0, PROMPT[:4], 0, [1, 2], True, states=[[8]])
    again = step(1, 1, PROMPT, 4, [1, 2, 3], True, states=[[8, 9]])
    assert judged([*first, *again], [4]) is None
    found = judged([*first, Observation("zeroed", 1, (), {"blocks": [8]}), *again], [4])
    assert found is not None
    assert found.variable == "first_state"


def test_a_state_that_comes_back_late_is_not_left_in_a_block_that_is_another_request_s_by_then() -> None:
    first = step(0, 0, PROMPT, 0, [1, 2, 3], True, states=[[8, 9]], drafts=1)
    processed = Observation("processed", 0, (0,), {"sampled": [[9, 4]]})
    # Once the first request has ended, its block for states has tokens of another one.
    begun, goes_on = step(1, 1, [1, 2], 0, [9], True), step(2, 1, [1, 2, 3], 2, [9, 4], False)
    assert judged([*first, *begun, processed, *goes_on], [4]) is None
    assert judged([*first, processed, *begun, *goes_on], [4]) is None
    # Or a state of another one.
    begun = step(1, 1, [1, 2, 3, 4], 0, [4, 5], True, states=[[9]])
    found = step(2, 2, [1, 2, 3, 4, 7], 4, [4, 5, 6], True, states=[[9, 7]])
    assert judged([*first, *begun, processed, *found], [4]) is None
    assert judged([*first, *begun, *found], [4]) is None


@pytest.mark.parametrize(
    ("blocks", "num_states", "states"), [([9, 8], 0, []), ([9, 10, 8], 1, [[8, 12]])], ids=("tokens", "state")
)
def test_a_state_that_comes_back_late_is_not_left_in_a_block_that_was_loaded_meanwhile(
    blocks: list[int], num_states: int, states: list[list[int]]
) -> None:
    stored_blocks, slots = [4, 5, 7][: len(blocks)], [0, 1, 2][: len(blocks)]
    kept = [*step(0, 0, [1, 2, 3, 4], 0, [4, 5], True, states=[[7]])]
    kept.append(copied("store", stored_blocks, slots, num_states=num_states))
    late = step(1, 1, PROMPT, 0, [1, 2, 3], True, states=[[6, 8]], drafts=1)
    processed = Observation("processed", 1, (1,), {"sampled": [[9, 4]]})
    # Once the request of the late step has ended, its block for states is one of what another one loads.
    load = copied("load", blocks, slots, num_states=num_states)
    again = step(2, 2, [1, 2, 3, 4, 7], 4, [*blocks[:2], 11], True, states=states)
    assert judged([*kept, *late, load, processed, *again], [4]) is None
    assert judged([*kept, *late, processed, *again], [4]) is not None


def test_the_same_block_behind_another_prefix_is_another_one() -> None:
    first = [*step(0, 0, [1, 2, 7, 8], 0, [1, 2], True), copied("store", [1, 2], [0, 1])]
    own = step(1, 1, [5, 6], 0, [4], True)
    found = judged([*first, *own, copied("load", [5], [1]), *step(2, 1, PROMPT, 4, [4, 5, 6], True)])
    assert found is not None
    assert found.position == 2


def test_a_block_that_others_overwrote_is_found() -> None:
    steps = [*step(0, 0, PROMPT[:3], 0, [1, 2], True), *step(1, 1, [3], 0, [1], True)]
    found = judged([*steps, *step(2, 0, PROMPT[:4], 3, [1, 2], False)])
    assert found is not None
    assert found.position == 0


def copy(source: int, target: int) -> Observation:
    return Observation("copied", 1, (), {"blocks": [[source, target]]})


def test_a_copy_of_a_block_of_which_a_hit_ends_inside_has_what_that_had() -> None:
    first = step(0, 0, PROMPT[:3], 0, [1, 2], True)
    behind = step(1, 1, PROMPT, 3, [1, 4, 5], True)
    assert judged([*first, copy(2, 4), *behind]) is None
    for copies in ([], [copy(1, 4)]):
        found = judged([*first, *copies, *behind])
        assert found is not None
        assert (found.variable, found.position) == ("attended", 2)


def test_a_copy_of_a_state_is_gone_on_from_as_that_is() -> None:
    first = step(0, 0, PROMPT[:3], 0, [1, 2], True, states=[[10, 11]])
    behind = step(1, 1, PROMPT, 3, [1, 2, 5], True, states=[[10, 12, 13]])
    assert judged([*first, copy(11, 12), *behind], [SIZE]) is None
    found = judged([*first, copy(10, 12), *behind], [SIZE])
    assert found is not None
    assert found.variable == "first_state"


def test_blocks_that_are_stored_with_all_that_they_are_told_of_are_passed_over() -> None:
    first = step(0, 0, PROMPT, 0, [1, 2, 3], True)
    assert judged([*first, stored([1, 2], PROMPT), stored([2], [*PROMPT, 4], first=1)]) is None


@pytest.mark.parametrize(
    ("position", "tokens", "seen"),
    [
        # Of what is computed the last block is not full.
        (5, [*PROMPT, 4], [stored([1, 2, 3], [*PROMPT, 4])]),
        # What was computed there was another token.
        (3, [5, 6, 7, 1], [stored([1, 2], [5, 6, 7, 1])]),
        # Another request has computed something there.
        (0, PROMPT, [*step(1, 1, [3], 0, [1], True), stored([1, 2], PROMPT)]),
        (2, PROMPT, [stored([1], PROMPT, first=1)]),
    ],
)
def test_a_block_that_is_stored_without_all_that_it_is_told_of_is_found(
    position: int, tokens: list[int], seen: list[Observation]
) -> None:
    found = judged([*step(0, 0, PROMPT, 0, [1, 2, 3], True), *seen])
    assert found is not None
    assert (found.variable, found.request, found.position) == ("stored", "submit 0", position)
    assert isinstance(found.expected, Fact)
    assert found.expected.values == {"token": tokens[position]}


def test_a_step_waits_for_its_own_loads_and_is_not_judged_behind_what_they_lose() -> None:
    first = [*step(0, 0, PROMPT, 0, [1, 2, 3], True), copied("store", [1, 2], [0, 1])]
    late = step(1, 1, PROMPT, 4, [4, 5, 6], True)
    assert judged([*first, *late, copied("load", [4, 5], [0, 1], step=1, now=True)]) is None
    assert judged([*first, *late, copied("load", [4, 5], [0, 1], [1], step=1, now=True)]) is None
    assert judged([*first, *late, copied("load", [4, 5], [0, 1], [1], step=1)]) is not None


def test_what_is_computed_behind_a_lost_block_is_nobody_s_until_that_is_computed() -> None:
    first = [*step(0, 0, PROMPT, 0, [1, 2, 3], True), copied("store", [1, 2], [0, 1])]
    late = [copied("load", [4], [0], [0], step=1, now=True), *step(1, 1, PROMPT[:4], 2, [4, 5], True)]
    behind = [copied("store", [5], [2]), copied("load", [8, 9], [0, 2])]
    again = step(3, 2, PROMPT, 4, [8, 9, 10], True)
    found = judged([*first, *late, *behind, *again])
    assert found is not None
    assert (found.position, found.actual) == (2, Fact(kind="entry_unwritten"))
    whole = step(2, 1, PROMPT[:4], 0, [4, 5], False)
    assert judged([*first, *late, *whole, *behind, *again]) is None
    # In the step that computes it again another row is behind it, too.
    planned, inputs = whole
    both = {**planned.values, "scheduled_computed": [2, 0], "begun": [(3, PROMPT[:4])]}
    beside = {
        "starts": [0, 2, 6],
        "positions": [2, 3, 0, 1, 2, 3],
        "input_ids": [*PROMPT[2:4], *PROMPT[:4]],
        "slots": [12, 13, *inputs.values["slots"]],
        "tables": [[4, 6], [4, 5]],
        "drafts": [0, 0],
    }
    together = [Observation("scheduled", 2, (3, 1), both), Observation("inputs", 2, (3, 1), beside)]
    behind = [copied("store", [4, 6], [0, 2]), copied("load", [8, 9], [0, 2])]
    assert judged([*first, *late, *together, *behind, *again]) is None


def of_producer(*seen: Observation) -> list[Observation]:
    return [each._replace(of=PRODUCER) for each in seen]


def test_tokens_that_a_producer_computed_are_a_request_s_own_where_they_are_loaded_from_its_cache() -> None:
    prompt = [*of_producer(opened(), *step(0, 0, PROMPT, 0, [1, 2, 3], True)), copied("load", [4, 5, 6], [1, 2, 3])]
    assert judged([*prompt, *step(0, 0, PROMPT, 4, [4, 5, 6], True)]) is None
    # The producer's blocks are none of the consumer's.
    found = judged([*prompt, *step(0, 0, PROMPT, 4, [1, 2, 3], True)])
    assert found is not None
    assert found.actual == Fact(kind="entry_unwritten")


def test_a_block_of_a_producer_that_another_of_its_requests_overwrote_before_it_was_loaded_is_found() -> None:
    prompts = of_producer(opened(), *step(0, 0, PROMPT, 0, [1, 2, 3], True), *step(1, 1, [3, 4], 0, [2], True))
    found = judged([*prompts, copied("load", [4, 5, 6], [1, 2, 3]), *step(0, 0, PROMPT, 4, [4, 5, 6], True)])
    assert found is not None
    assert (found.variable, found.request, found.position) == ("attended", "submit 0", 2)


def test_what_a_producer_attends_to_is_judged_as_well() -> None:
    steps = [*step(0, 0, PROMPT[:3], 0, [1, 2], True), *step(1, 0, PROMPT, 3, [3, 2, 4], False)]
    found = judged(of_producer(opened(), *steps))
    assert found is not None
    assert found.variable == "producer_attended"


ONE_GROUP = [SIZE]
# A step that leaves a state behind its first four tokens, and one of another request that is to go on from it.
STATE_LEFT = step(0, 0, PROMPT[:4], 0, [1, 2], True, states=[[0, 7]])


def going_on(block: int) -> list[Observation]:
    return step(1, 1, PROMPT, 4, [4, 5, 6], True, states=[[0, block, 9]])


def test_a_state_that_is_stored_and_loaded_with_its_prefix_is_gone_on_from() -> None:
    stored_with_it = copied("store", [1, 2, 7], [0, 1, 2], num_states=1)
    loaded = copied("load", [4, 5, 8], [0, 1, 2], num_states=1)
    assert judged([*STATE_LEFT, stored_with_it, loaded, *going_on(8)], ONE_GROUP) is None
    assert (
        judged([*STATE_LEFT, copied("store", [1, 2], [0, 1]), copied("load", [4, 5], [0, 1]), *going_on(7)], ONE_GROUP)
        is None
    )


@pytest.mark.parametrize(
    "seen",
    [
        # It is not loaded; another is; it is stored before it is computed; its block is written by others.
        [*STATE_LEFT, copied("store", [1, 2], [0, 1]), copied("load", [4, 5], [0, 1])],
        [
            *STATE_LEFT,
            *step(2, 2, [3, 4, 5, 6], 0, [10, 11], True, states=[[0, 12]]),
            copied("store", [1, 2, 12], [0, 1, 2], num_states=1),
            copied("load", [4, 5, 8], [0, 1, 2], num_states=1),
        ],
        [
            copied("store", [7], [2], num_states=1),
            *STATE_LEFT,
            copied("store", [1, 2], [0, 1]),
            copied("load", [4, 5, 8], [0, 1, 2], num_states=1),
        ],
        [
            *STATE_LEFT,
            copied("store", [1, 2, 7], [0, 1, 2], num_states=1),
            copied("load", [4, 5, 8], [0, 1, 2], num_states=1),
            *step(2, 2, [3], 0, [8], True, states=[[13]]),
        ],
    ],
)
def test_a_request_that_goes_on_from_a_state_of_other_tokens_is_found(seen: list[Observation]) -> None:
    found = judged([*seen, *going_on(8)], ONE_GROUP)
    assert found is not None
    assert (found.variable, found.request, found.position) == ("first_state", "submit 1", 3)


def test_behind_drafts_a_state_at_the_end_of_a_block_is_there_once_they_are_kept() -> None:
    verifying = step(0, 0, PROMPT[:3], 0, [1, 2], True, states=[[0, 7]])
    drafts = step(2, 0, [*PROMPT, 3], 3, [1, 2, 3], False, states=[[0, 7, 9]], drafts=2)
    loaded = copied("load", [4, 5], [0, 1])
    for kept in (0, 1):
        processed = Observation("processed", 2, (0,), {"sampled": [[8, 3][: 1 + kept]]})
        stored_then = copied("store", [1, 2], [0, 1], step=2)
        seen = [*verifying, *drafts, processed, stored_then, loaded]
        again = step(3, 1, PROMPT, 4, [4, 5, 6], True, states=[[0, 7, 10]])
        assert judged([*seen, *again], ONE_GROUP) is None

"""KV-cache content: only entries of a request's own prefix are accepted."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from scenarios.spec import ENGINE, PRODUCER, EngineName
from tests.workers.judge.histories import Part, first_of, opened, reported, shown, step_of
from workers.judge.kv_content import KVContent
from workers.record.engine_records import EngineRecord
from workers.record.evidence import Difference, Fact

SIZE = 2
PROMPT = [5, 6, 7, 8, 9]
UNWRITTEN = Fact(kind="entry_unwritten")


def step(
    number: int,
    request: int,
    tokens: Sequence[int],
    first: int,
    table: list[int],
    begins: bool = False,
    *,
    states: Sequence[list[int]] = (),
    drafts: int = 0,
    engine: EngineName = ENGINE,
) -> list[EngineRecord]:
    """Return a step of one request that computes its tokens from the first on.

    The last ones may be draft tokens.
    """
    part = Part(request, first, tokens[first:], table, drafts, tokens if begins else None, states)
    return step_of(number, part, size=SIZE, engine=engine)


def copied(
    of: str,
    blocks: list[int],
    slots: list[int],
    lost: Sequence[int] = (),
    step: int = 0,
    now: bool = False,
    num_states: int = 0,
) -> EngineRecord:
    values: dict[str, Any] = {"blocks": blocks, "slots": slots, "lost": lost, "num_states": num_states}
    return shown("transfer", step, [0], phase="copies", of=of, is_synchronous=now, **values)


store, load = partial(copied, "store"), partial(copied, "load")


def stored(blocks: list[int], tokens: list[int], first: int = 0) -> EngineRecord:
    """Return the record of stored blocks of the first request, from a block-table index on."""
    return shown("stored", 0, [0], blocks=blocks, indexes=range(first, first + len(blocks)), tokens=tokens)


def judged(seen: Sequence[EngineRecord], state_sizes: Sequence[int] = ()) -> Difference | None:
    return first_of(KVContent(), [opened(block_size=SIZE, state_sizes=state_sizes), *seen])


FIRST = step(0, 0, PROMPT, 0, [1, 2, 3], True)
STORED = [*FIRST, store([1, 2], [0, 1])]
AGAIN = step(1, 1, PROMPT, 4, [4, 5, 6], True)


def test_tokens_that_were_stored_and_loaded_are_accepted() -> None:
    assert judged([*STORED, load([4, 5], [0, 1]), *AGAIN]) is None


def test_loaded_blocks_in_each_others_places_are_reported() -> None:
    found = judged([*STORED, load([4, 5], [1, 0]), *AGAIN])
    assert reported(found, "request", "position") == ("submit 1", 0)
    assert found is not None
    assert isinstance(found.actual, Fact)
    assert found.actual.values == {"token": 7, "position": 2}


def test_block_stored_before_it_was_computed_is_reported_after_its_load() -> None:
    found = judged([store([1, 2], [0, 1]), *FIRST, load([4, 5], [0, 1]), *AGAIN])
    assert reported(found, "actual") == (UNWRITTEN,)


def test_block_zeroed_before_it_was_stored_is_reported_after_its_load() -> None:
    zeroed, again = shown("zeroed", 1, blocks=[2]), [load([4, 5], [0, 1]), *AGAIN]
    assert judged([*STORED, zeroed, *again]) is None
    assert reported(judged([*FIRST, zeroed, STORED[-1], *again]), "position", "actual") == (2, UNWRITTEN)


def test_first_state_in_a_zeroed_block_is_reported() -> None:
    first = step(0, 0, PROMPT[:4], 0, [1, 2], True, states=[[8]])
    again = step(1, 1, PROMPT, 4, [1, 2, 3], True, states=[[8, 9]])
    assert judged([*first, *again], [4]) is None
    assert reported(judged([*first, shown("zeroed", 1, blocks=[8]), *again], [4]), "variable") == ("first_state",)


def test_late_result_leaves_no_state_in_a_block_of_another_request() -> None:
    first = step(0, 0, PROMPT, 0, [1, 2, 3], True, states=[[8, 9]], drafts=1)
    processed = shown("processed", 0, [0], sampled=[[9, 4]])
    # After the first request has ended, its state block holds KV cache entries of a new request.
    begun, continued = step(1, 1, [1, 2], 0, [9], True), step(2, 1, [1, 2, 3], 2, [9, 4])
    assert judged([*first, *begun, processed, *continued], [4]) is None
    assert judged([*first, processed, *begun, *continued], [4]) is None
    # Or a state of a new request.
    begun = step(1, 1, [1, 2, 3, 4], 0, [4, 5], True, states=[[9]])
    found = step(2, 2, [1, 2, 3, 4, 7], 4, [4, 5, 6], True, states=[[9, 7]])
    assert judged([*first, *begun, processed, *found], [4]) is None
    assert judged([*first, *begun, *found], [4]) is None


@pytest.mark.parametrize(
    ("blocks", "num_states", "states"), [([9, 8], 0, []), ([9, 10, 8], 1, [[8, 12]])], ids=("tokens", "state")
)
def test_late_result_leaves_no_state_in_a_block_loaded_meanwhile(
    blocks: list[int], num_states: int, states: list[list[int]]
) -> None:
    kept = step(0, 0, [1, 2, 3, 4], 0, [4, 5], True, states=[[7]])
    slots = [0, 1, 2][: len(blocks)]
    kept.append(store([4, 5, 7][: len(blocks)], slots, num_states=num_states))
    late = step(1, 1, PROMPT, 0, [1, 2, 3], True, states=[[6, 8]], drafts=1)
    processed = shown("processed", 1, [1], sampled=[[9, 4]])
    # After the request of the late step has ended, a new request loads its state block.
    loaded = load(blocks, slots, num_states=num_states)
    again = step(2, 2, [1, 2, 3, 4, 7], 4, [*blocks[:2], 11], True, states=states)
    seen = [*kept, shown("processed", 0, [0], sampled=[[]]), *late]
    assert judged([*seen, loaded, processed, *again], [4]) is None
    assert judged([*seen, processed, *again], [4]) is not None


def test_loaded_block_with_another_prefix_before_it_is_reported() -> None:
    first = [*step(0, 0, [1, 2, 7, 8], 0, [1, 2], True), store([1, 2], [0, 1])]
    own = step(1, 1, [5, 6], 0, [4], True)
    found = judged([*first, *own, load([5], [1]), *step(2, 1, PROMPT, 4, [4, 5, 6], True)])
    assert reported(found, "position") == (2,)


def test_block_that_another_request_overwrote_is_reported() -> None:
    steps = [*step(0, 0, PROMPT[:3], 0, [1, 2], True), *step(1, 1, [3], 0, [1], True)]
    assert reported(judged([*steps, *step(2, 0, PROMPT[:4], 3, [1, 2])]), "position") == (0,)


def copy(source: int, target: int) -> EngineRecord:
    return shown("copied", 1, blocks=[(source, target)])


def test_copy_of_a_block_holds_the_entries_of_its_source() -> None:
    first, later = step(0, 0, PROMPT[:3], 0, [1, 2], True), step(1, 1, PROMPT, 3, [1, 4, 5], True)
    assert judged([*first, copy(2, 4), *later]) is None
    for copies in ([], [copy(1, 4)]):
        assert reported(judged([*first, *copies, *later]), "variable", "position") == ("attended", 2)


def test_copy_of_a_state_is_the_state_of_its_source() -> None:
    first = step(0, 0, PROMPT[:3], 0, [1, 2], True, states=[[10, 11]])
    later = step(1, 1, PROMPT, 3, [1, 2, 5], True, states=[[10, 12, 13]])
    assert judged([*first, copy(11, 12), *later], [SIZE]) is None
    assert reported(judged([*first, copy(10, 12), *later], [SIZE]), "variable") == ("first_state",)


def test_stored_blocks_of_the_tokens_reported_are_accepted() -> None:
    assert judged([*FIRST, stored([1, 2], PROMPT), stored([2], [*PROMPT, 4], first=1)]) is None


@pytest.mark.parametrize(
    ("position", "tokens", "seen"),
    [
        # The last block is not full.
        (5, [*PROMPT, 4], [stored([1, 2, 3], [*PROMPT, 4])]),
        # Another token was computed there.
        (3, [5, 6, 7, 1], [stored([1, 2], [5, 6, 7, 1])]),
        # Another request has computed something there.
        (0, PROMPT, [*step(1, 1, [3], 0, [1], True), stored([1, 2], PROMPT)]),
        (2, PROMPT, [stored([1], PROMPT, first=1)]),
    ],
)
def test_stored_block_of_other_tokens_is_reported(position: int, tokens: list[int], seen: list[EngineRecord]) -> None:
    found = judged([*FIRST, *seen])
    assert reported(found, "variable", "request", "position") == ("stored", "submit 0", position)
    assert found is not None
    assert isinstance(found.expected, Fact)
    assert found.expected.values == {"token": tokens[position]}


@pytest.mark.parametrize(
    ("lost", "now", "is_accepted"), [([], True, True), ([1], True, True), ([1], False, False)], ids=str
)
def test_step_waits_for_its_own_loads_and_is_not_judged_if_they_are_lost(
    lost: list[int], now: bool, is_accepted: bool
) -> None:
    assert (judged([*STORED, *AGAIN, load([4, 5], [0, 1], lost, step=1, now=now)]) is None) is is_accepted


def test_entries_after_a_lost_block_are_unwritten_until_it_is_computed() -> None:
    late = [load([4], [0], [0], step=1, now=True), *step(1, 1, PROMPT[:4], 2, [4, 5], True)]
    later, again = [store([5], [2]), load([8, 9], [0, 2])], step(3, 2, PROMPT, 4, [8, 9, 10], True)
    found = judged([*STORED, *late, *later, *again])
    assert reported(found, "position", "actual") == (2, UNWRITTEN)
    assert judged([*STORED, *late, *step(2, 1, PROMPT[:4], 0, [4, 5]), *later, *again]) is None
    # In the step that computes the lost block again, another row continues after it.
    other = Part(3, 2, PROMPT[2:4], [4, 6], begun=PROMPT[:4])
    together = step_of(2, other, Part(1, 0, PROMPT[:4], [4, 5]), size=SIZE)
    later = [store([4, 6], [0, 2]), load([8, 9], [0, 2])]
    assert judged([*STORED, *late, *together, *later, *again]) is None


producer = partial(step, engine=PRODUCER)
HANDED = [opened(PRODUCER, block_size=SIZE), *producer(0, 0, PROMPT, 0, [1, 2, 3], True)]
READ = load([4, 5, 6], [1, 2, 3])


def test_tokens_loaded_from_a_producers_cache_are_accepted() -> None:
    assert judged([*HANDED, READ, *step(0, 0, PROMPT, 4, [4, 5, 6], True)]) is None
    # The producer's blocks have other ids than the consumer's.
    assert reported(judged([*HANDED, READ, *step(0, 0, PROMPT, 4, [1, 2, 3], True)]), "actual") == (UNWRITTEN,)


def test_producer_block_overwritten_before_its_load_is_reported() -> None:
    overwritten = producer(1, 1, [3, 4], 0, [2], True)
    found = judged([*HANDED, *overwritten, READ, *step(0, 0, PROMPT, 4, [4, 5, 6], True)])
    assert reported(found, "variable", "request", "position") == ("attended", "submit 0", 2)


def test_wrong_entries_that_a_producer_attends_to_are_reported() -> None:
    steps = [*producer(0, 0, PROMPT[:3], 0, [1, 2], True), *producer(1, 0, PROMPT, 3, [3, 2, 4])]
    assert reported(judged([HANDED[0], *steps]), "variable") == ("producer_attended",)


# A step that leaves a state after its first four tokens, and a step of another request that starts from it.
STATE_LEFT = step(0, 0, PROMPT[:4], 0, [1, 2], True, states=[[0, 7]])
WITH_STATE = store([1, 2, 7], [0, 1, 2], num_states=1)
STATE_LOADED = load([4, 5, 8], [0, 1, 2], num_states=1)
LOADED = [store([1, 2], [0, 1]), load([4, 5], [0, 1])]


def from_state(block: int) -> list[EngineRecord]:
    return step(1, 1, PROMPT, 4, [4, 5, 6], True, states=[[0, block, 9]])


def test_state_that_is_stored_and_loaded_with_its_prefix_is_accepted() -> None:
    assert judged([*STATE_LEFT, WITH_STATE, STATE_LOADED, *from_state(8)], [SIZE]) is None
    assert judged([*STATE_LEFT, *LOADED, *from_state(7)], [SIZE]) is None


@pytest.mark.parametrize(
    "seen",
    [
        [*STATE_LEFT, *LOADED],
        [
            *STATE_LEFT,
            *step(2, 2, [3, 4, 5, 6], 0, [10, 11], True, states=[[0, 12]]),
            store([1, 2, 12], [0, 1, 2], num_states=1),
            STATE_LOADED,
        ],
        [store([7], [2], num_states=1), *STATE_LEFT, LOADED[0], STATE_LOADED],
        [*STATE_LEFT, WITH_STATE, STATE_LOADED, *step(2, 2, [3], 0, [8], True, states=[[13]])],
    ],
    ids=["not loaded", "another state loaded", "stored before it was computed", "overwritten by tokens"],
)
def test_first_state_of_other_tokens_is_reported(seen: list[EngineRecord]) -> None:
    found = judged([*seen, *from_state(8)], [SIZE])
    assert reported(found, "variable", "request", "position") == ("first_state", "submit 1", 3)


@pytest.mark.parametrize("sampled", [[8], [8, 3]])
def test_state_at_the_end_of_a_block_is_kept_with_its_accepted_drafts(sampled: list[int]) -> None:
    verifying = step(0, 0, PROMPT[:3], 0, [1, 2], True, states=[[0, 7]])
    drafts = step(1, 0, [*PROMPT, 3], 3, [1, 2, 3], states=[[0, 7, 9]], drafts=2)
    processed = [shown("processed", 0, [0], sampled=[[8]]), shown("processed", 1, [0], sampled=[sampled])]
    stored_then = [store([1, 2], [0, 1], step=2), load([4, 5], [0, 1])]
    again = step(3, 1, PROMPT, 4, [4, 5, 6], True, states=[[0, 7, 10]])
    assert judged([*verifying, *drafts, *processed, *stored_then, *again], [SIZE]) is None

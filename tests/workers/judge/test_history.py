"""History: steps, batch rows, turns and stays follow from the records in any valid order."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.spec import ENGINE, PRODUCER, EngineName
from tests.workers.judge.histories import Part, changed, opened, shown, slots_of, step_of
from workers.judge.history import History, Row, StateInput, Step, Turn, WindowInput
from workers.record.engine_records import EngineRecord

SIZE = 4
TOKENS = st.lists(st.integers(0, 31), min_size=1, max_size=4)


@st.composite
def runs(draw: st.DrawFn, engine: EngineName = ENGINE) -> list[EngineRecord]:
    """Generate a run of up to three requests; results come up to two steps later."""
    seen, waiting, running = [opened(engine)], list[EngineRecord](), set[int]()
    for number in range(draw(st.integers(1, 6))):
        requests = draw(st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True))
        begun = [(each, draw(TOKENS)) for each in requests if each not in running or draw(st.booleans())]
        computed = [draw(st.integers(0, 3)) for _ in requests]
        seen.append(shown("scheduled", number, requests, engine, begun=begun, scheduled_computed=computed))
        running.update(requests)
        sampled = [draw(st.lists(st.integers(0, 31), max_size=3)) for _ in requests]
        waiting.append(shown("processed", number, requests, engine, sampled=sampled))
        while len(waiting) > 2 or (waiting and draw(st.booleans())):
            seen.append(waiting.pop(0))
    return seen + waiting


def steps_of(seen: Sequence[EngineRecord]) -> Mapping[int, Step]:
    return History.of(seen).steps_of(ENGINE)


def turns_of(steps: Mapping[int, Step]) -> list[tuple[int, int, Turn]]:
    """Return the step number, the request and the turn of every batch row of a run.

    Every step has a row for each of its requests.
    """
    assert all(step.turns.keys() == set(step.requests) for step in steps.values())
    return [(number, request, turn) for number, step in steps.items() for request, turn in step.turns.items()]


def tokens_of(steps: Mapping[int, Step], request: int, first: int, stop: int) -> list[int]:
    """Return the tokens of a stay from its begin to before another step."""
    sampled = (steps[number].sampled.get(request, ()) for number in range(first, stop))
    return [*steps[first].begun[request], *(token for tokens in sampled for token in tokens)]


@given(runs())
def test_turn_has_known_tokens_before_its_step(seen: list[EngineRecord]) -> None:
    steps = steps_of(seen)
    turns = turns_of(steps)
    assert turns
    for number, request, turn in turns:
        first = max(each for each in range(number + 1) if request in steps[each].begun)
        assert list(turn.known) == tokens_of(steps, request, first, number)
        assert turn.last == max((each for each in range(first, number) if request in steps[each].turns), default=-1)


@given(runs())
def test_stay_has_its_hit_and_the_tokens_of_the_stay_before(seen: list[EngineRecord]) -> None:
    steps = steps_of(seen)
    turns = turns_of(steps)
    assert turns
    for number, request, turn in turns:
        *earlier, first = (each for each in range(number + 1) if request in steps[each].begun)
        stay, before = turn.stay, tokens_of(steps, request, earlier[-1], first) if earlier else None
        assert (stay.request, stay.first, stay.hit) == (request, first, steps[first].computed[request])
        assert stay.before == before
        assert stay.tokens_are_known is (before is None or len(before) <= len(steps[first].begun[request]))


@given(runs())
def test_turns_do_not_depend_on_when_results_come(seen: list[EngineRecord]) -> None:
    late = sorted(seen, key=lambda each: each.point == "processed")
    assert [step.turns for step in steps_of(late).values()] == [step.turns for step in steps_of(seen).values()]
    assert {step.num_processed for step in steps_of(late).values()} == {0}


@given(runs())
def test_step_counts_the_results_that_came_before_its_plan(seen: list[EngineRecord]) -> None:
    for at, each in enumerate(seen):
        if each.point == "scheduled":
            num_processed = sum(before.point == "processed" for before in seen[:at])
            assert steps_of(seen)[each.step].num_processed == num_processed
    assert History.of(seen).engines[ENGINE].num_processed == len(steps_of(seen))


@given(runs(), runs(PRODUCER))
def test_engines_of_one_run_have_their_own_histories(own: list[EngineRecord], other: list[EngineRecord]) -> None:
    order = sorted((position, of) for of, seen in enumerate((own, other)) for position in range(len(seen)))
    merged = History.of([(own, other)[of][position] for position, of in order])
    assert merged.engines == {**History.of(own).engines, **History.of(other).engines}
    assert History.of(own).steps_of(PRODUCER) == {}


@st.composite
def batches(draw: st.DrawFn) -> list[Part]:
    """Generate the batch rows of a step with equal numbers of state and window groups."""
    num_states, num_windows = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    table = st.lists(st.integers(0, 50), min_size=4, max_size=4)
    return [
        Part(
            request,
            draw(st.integers(0, 8)),
            tokens := draw(TOKENS),
            draw(table),
            draw(st.integers(0, len(tokens) - 1)),
            begun=tokens,
            states=[draw(table) for _ in range(num_states)],
            windows=[draw(table) for _ in range(num_windows)],
            kept=draw(st.integers(1, 3)),
        )
        for request in draw(st.permutations(range(draw(st.integers(1, 3)))))
    ]


def row_of(part: Part, copied: int) -> Row:
    """Return the batch row that a part describes."""
    slots, is_whole = slots_of(part.positions, part.table, SIZE), len(part.input_ids) > 1 + part.num_drafts
    return Row(
        request=part.request,
        input_ids=part.input_ids,
        positions=list(part.positions),
        slots=slots,
        seq_len=part.positions.stop,
        num_drafts=part.num_drafts,
        table=part.table,
        bound=part.positions.stop,
        copied=copied,
        states=[StateInput(held[-1], [held[-1]], part.first > 0, part.kept, is_whole) for held in part.states],
        windows=[WindowInput(slots_of(part.positions, held, SIZE), held) for held in part.windows],
    )


@given(batches(), st.lists(st.integers(-1, 9), max_size=2), st.integers(0, 3))
def test_row_has_its_columns_of_each_group_without_padding(parts: list[Part], padding: list[int], copied: int) -> None:
    seen = [opened(), *step_of(0, *parts, size=SIZE, copied=[copied] * len(parts))]
    values = seen[-1].model_dump()["values"]
    groups = [{**group, "slots": [*group["slots"], *padding]} for group in values["windows"]]
    padded = changed(seen, (0, "inputs", "slots", [*values["slots"], *padding]), (0, "inputs", "windows", groups))
    step = steps_of(padded)[0]
    assert list(step.rows) == [row_of(part, copied) for part in parts]
    assert (step.padding, step.window_padding) == (padding, [padding] * len(groups))


def test_row_without_bounds_copies_or_states_has_none() -> None:
    plan = shown("scheduled", 0, [0], begun=[(0, [1])])
    (row,) = steps_of([opened(), plan, shown("inputs", 0, [0])])[0].rows
    assert (row.bound, row.copied, row.states, row.windows) == (None, 0, [], [])


def test_row_with_a_state_after_each_token_has_a_block_for_each() -> None:
    parts = Part(0, 0, [1, 2], [7], begun=[1, 2], states=[[20]]), Part(1, 0, [3], [8], begun=[3], states=[[22]])
    seen = changed([opened(), *step_of(0, *parts)], (0, "inputs", "states", 0, "left", [[20, 21, 99], [22, 99]]))
    assert [list(row.states[0].blocks) for row in steps_of(seen)[0].rows] == [[20, 21], [22]]


PLAN = shown("scheduled", 0, [0], begun=[(0, [1])])


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        ([PLAN, PLAN], "step 0 is planned twice"),
        ([PLAN, shown("processed", 1, [0], sampled=[[1]])], "step 1 is processed out of order"),
        ([PLAN, shown("drafting", 0, [0], index=1)], "a draft pass is missing"),
    ],
)
def test_history_shown_in_a_wrong_order_is_refused(seen: list[EngineRecord], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        History.of([opened(), *seen])

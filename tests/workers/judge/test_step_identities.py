"""Identities of steps: steps that keep them are passed over, each value that breaks one is reported by its identity."""

from collections.abc import Callable
from copy import deepcopy
from itertools import pairwise
from typing import Any

import pytest

from workers.judge.judge import End
from workers.judge.step_identities import StepIdentities
from workers.record.evidence import Difference, fact
from workers.record.observation import Observation

VOCABULARY, BLOCK = 32, 4
Values = dict[str, Any]
Step = dict[str, Values]


def planned(requests: list[int], computed: list[int], drafts: list[int], begun: Any, blocks: Any) -> Values:
    return {
        "requests": requests,
        "scheduled_computed": computed,
        "planned_drafts": drafts,
        "begun": begun,
        "blocks": blocks,
        "states": [[request, []] for request, _ in blocks],
    }


def inputs(drafts: list[int], ids: list[int], positions: list[int], starts: list[int], tables: Any) -> Values:
    rows = [row for row, (start, stop) in enumerate(pairwise(starts)) for _ in range(start, stop)]
    slots = [
        tables[row][position // BLOCK] * BLOCK + position % BLOCK for row, position in zip(rows, positions, strict=True)
    ]
    lengths = [positions[stop - 1] + 1 for stop in starts[1:]]
    return {
        "drafts": drafts,
        "input_ids": ids,
        "positions": positions,
        "slots": slots,
        "starts": starts,
        "seq_lens": lengths,
        "bounds": list(lengths),
        "tables": tables,
    }


def steps() -> list[Step]:
    """Two requests whose prompts begin with the same block, to which the second comes by a hit; a draft is rejected."""
    prompt, other = [1, 2, 3, 4, 5], [1, 2, 3, 4, 9]
    first, second = [0, [7, 8]], [1, [7, 3]]
    return [
        {
            "scheduled": planned([0], [0], [0], [[0, prompt]], [first]),
            "inputs": inputs([0], list(prompt), [0, 1, 2, 3, 4], [0, 5], [[7, 8]]),
            "corrected": {"mirror_computed": [0]},
            "processed": {"sampled": [[6]]},
        },
        {
            "scheduled": planned([0, 1], [5, 4], [2, 0], [[1, other]], [first, second]),
            "inputs": inputs([2, 0], [6, 11, 12, 9], [5, 6, 7, 4], [0, 3, 4], [[7, 8], [7, 3]]),
            "corrected": {"mirror_computed": [5, 4]},
            "processed": {"sampled": [[11, 13], [20]]},
            "counted": {"counted": [1, 2, 1]},
        },
        {
            # One draft of the step before is taken for accepted, and is not; two planned drafts are taken out again.
            "scheduled": planned([1, 0], [5, 8], [0, 2], [], [[0, [7, 8, 9]], second]),
            "inputs": inputs([0, 0], [20, 13], [5, 7], [0, 1, 2], [[7, 3], [7, 8, 9]]),
            "corrected": {"mirror_computed": [5, 7]},
            "processed": {"sampled": [[21], [14]]},
        },
    ]


def judged(run: list[Step], leaks: dict[str, int] | None = None, ends: bool = True) -> Difference | None:
    judge = StepIdentities()
    judge.see_log(
        [
            Observation(
                "opened",
                -1,
                (),
                {"vocab_size": VOCABULARY, "block_size": BLOCK, "state_sizes": [64, 64], "max_model_len": 10},
            )
        ]
    )
    # A step comes back once the next has been launched.
    order = [(number, point) for number in range(len(run)) for point in ("scheduled", "inputs", "corrected")]
    for number in range(len(run)):
        place = order.index((number + 1, "corrected")) + 1 if number + 1 < len(run) else len(order)
        order[place:place] = [(number, "processed"), (number, "counted")]
    for number, point in order:
        if point in run[number]:
            values = run[number][point]
            judge.see_log([Observation(point, number, tuple(run[number]["scheduled"]["requests"]), values)])
    if not ends:
        return judge.before_crash()
    judge.see_log([Observation("drained", len(run), (), {"leaks": leaks or {}})])
    return judge.at_end(End(len(run), {}))


def test_steps_that_keep_all_identities_are_passed_over() -> None:
    assert judged(steps()) is None


def _set(step: int, point: str, name: str, index: int, value: Any) -> Callable[[list[Step]], None]:
    def change(run: list[Step]) -> None:
        run[step][point][name][index] = value

    return change


def _move(run: list[Step]) -> None:
    run[2]["inputs"]["tables"][1] = [7, 3, 9]
    run[2]["inputs"]["slots"][1] = 3 * BLOCK + 3


def _hold(run: list[Step]) -> None:
    run[1]["scheduled"]["blocks"][0] = [0, [7, 8, 9, 10]]


def _lose(run: list[Step]) -> None:
    del run[1]["inputs"]


def name_of(request: int | None) -> str:
    """Return what a difference calls a request of that number, or none."""
    return "" if request is None else f"submit {request}"


WRONG: dict[str, tuple[Callable[[list[Step]], None], tuple[str, int | None, int, int | None]]] = {
    "a draft that is none": (_set(1, "inputs", "input_ids", 2, -1), ("input_ids", 0, 1, 7)),
    "a draft beyond the vocabulary": (_set(1, "inputs", "input_ids", 1, 32), ("input_ids", 0, 1, 6)),
    "a token of the prompt": (_set(0, "inputs", "input_ids", 3, 5), ("input_ids", 0, 0, 3)),
    "a token that was sampled": (_set(2, "inputs", "input_ids", 1, 11), ("input_ids", 0, 2, 7)),
    "a draft that is not said to be one": (_set(1, "inputs", "drafts", 0, 1), ("input_ids", 0, 1, 6)),
    "a position": (_set(1, "inputs", "positions", 1, 7), ("positions", 0, 1, 6)),
    "a length": (_set(1, "inputs", "seq_lens", 1, 6), ("seq_lens", 1, 1, None)),
    "a bound of a length": (_set(1, "inputs", "bounds", 1, 4), ("bounds", 1, 1, None)),
    "a slot": (_set(1, "inputs", "slots", 3, 12 + 1), ("slots", 1, 1, 4)),
    "a slot of another": (_set(1, "inputs", "slots", 3, 8 * BLOCK + 1), ("slots", 1, 1, 4)),
    "a block of another": (_move, ("tables", 0, 2, 7)),
    "a block handed out twice": (_set(1, "scheduled", "blocks", 1, [1, [7, 8]]), ("tables", 0, 1, 5)),
    "more blocks than the longest has": (_hold, ("held", 0, 1, None)),
    "a count below the true one": (
        _set(2, "scheduled", "scheduled_computed", 0, 4),
        ("scheduled_computed", 1, 2, None),
    ),
    "a count above what is in flight": (
        _set(2, "scheduled", "scheduled_computed", 1, 10),
        ("scheduled_computed", 0, 2, None),
    ),
    "a count that is not corrected": (_set(2, "corrected", "mirror_computed", 1, 8), ("mirror_computed", 0, 2, None)),
    "a row counted that had no drafts": (_set(1, "counted", "counted", 0, 2), ("counted_rows", None, 1, None)),
    "drafts counted that there were none": (_set(1, "counted", "counted", 1, 3), ("counted_drafts", None, 1, None)),
    "fewer accepted than none": (_set(1, "counted", "counted", 2, -1), ("counted_accepted", None, 1, None)),
    "inputs that are not shown": (_lose, ("inputs", None, 1, None)),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_value_that_breaks_an_identity_is_reported_with_request_step_and_position(wrong: str) -> None:
    run = deepcopy(steps())
    change, expected = WRONG[wrong]
    change(run)
    breach = judged(run)
    assert breach is not None
    variable, request, step, position = expected
    seen = (breach.variable, breach.request, breach.step, breach.position)
    assert seen == (variable, name_of(request), step, position), breach


def test_a_block_that_two_requests_write_is_reported_even_if_it_was_planned_so() -> None:
    run = steps()
    run[1]["scheduled"]["blocks"] = [[0, [7, 8]], [1, [7, 8]]]
    run[1]["inputs"]["tables"][1] = [7, 8]
    run[1]["inputs"]["slots"][3] = 8 * BLOCK
    breach = judged(run)
    assert breach is not None
    assert (breach.plane, breach.variable, breach.request) == ("blocks", "tables", name_of(0))


def test_what_is_held_at_the_end_is_told() -> None:
    told = judged(steps(), {"blocks": 2})
    assert told is not None
    assert (told.plane, told.variable, told.request) == ("books", "leaks", "")
    assert (told.expected, told.actual) == (fact("none_held", what="blocks"), 2)


def test_a_resumed_request_begins_again_from_what_it_is_given() -> None:
    run = steps()
    resumed = planned([0], [0], [0], [[0, [1, 2, 3, 4, 5, 6, 11, 13, 14]]], [[0, [5, 6, 4]]])
    run.append(
        {
            "scheduled": resumed,
            "inputs": inputs([0], [1, 2, 3, 4, 5, 6, 11, 13, 14], list(range(9)), [0, 9], [[5, 6, 4]]),
            "processed": {"sampled": [[15]]},
        }
    )
    assert judged(run) is None
    run[-1]["inputs"]["input_ids"][8] = 12
    breach = judged(run)
    assert breach is not None
    assert (breach.variable, breach.step, breach.position) == ("input_ids", 3, 8)


def test_no_token_comes_of_a_chunk_and_no_draft_behind_it() -> None:
    def chunked(sampled: list[int], drafts: int = 0) -> list[Step]:
        prompt, held = [1, 2, 3, 4, 5], [[0, [7, 8]]]
        return [
            {
                "scheduled": planned([0], [0], [0], [[0, prompt]], held),
                "inputs": inputs([0], prompt[:3], [0, 1, 2], [0, 3], [[7, 8]]),
                "processed": {"sampled": [sampled]},
            },
            {
                "scheduled": planned([0], [3], [drafts], [], held),
                "inputs": inputs([drafts], [4, 5, 6][: 2 + drafts], [3, 4, 5][: 2 + drafts], [0, 2 + drafts], [[7, 8]]),
                "processed": {"sampled": [[6]]},
            },
        ]

    assert judged(chunked([])) is None
    for wrong, due in ((chunked([9]), ("sampled", 0, 3, (9,))), (chunked([], drafts=1), ("drafts", 1, 5, 1))):
        found = judged(wrong)
        assert found is not None
        assert (found.variable, found.step, found.position, found.actual) == due


@pytest.mark.parametrize(
    ("wrong", "is_told"),
    [(-1, True), (VOCABULARY, True), (9, False)],
    ids=["a draft that is none", "a draft beyond the vocabulary", "another draft"],
)
def test_of_a_run_that_breaks_off_all_is_judged_that_can_be(wrong: int, is_told: bool) -> None:
    run = steps()
    run[1]["inputs"]["input_ids"][2] = wrong
    del run[1]["processed"], run[2]["processed"], run[1]["counted"]
    # What the next step is given does not follow from what has not come back.
    run[2]["inputs"]["positions"] = [4, 9]
    found = judged(run, ends=False)
    assert (found is not None) is is_told
    if found is not None:
        assert (found.variable, found.step, found.position) == ("input_ids", 1, 7)
    run[0]["inputs"]["seq_lens"] = [6]
    first = judged(run, ends=False)
    assert first is not None
    assert (first.variable, first.step) == ("seq_lens", 0)


STATES = {0: [[20], [21]], 1: [[22], [23]]}


def hybrid_steps() -> list[Step]:
    """The same of a model with two groups of layers that have states."""
    run = steps()
    for number, step in enumerate(run):
        requests, given = step["scheduled"]["requests"], step["inputs"]
        step["scheduled"]["states"] = [[request, STATES[request]] for request, _ in step["scheduled"]["blocks"]]
        for group in (0, 1):
            given[f"states_{group}"] = [STATES[request][group][0] for request in requests]
            given[f"goes_on_{group}"] = [given["positions"][start] > 0 for start in given["starts"][:-1]]
            given[f"kept_{group}"] = [kept_before(run, number, request) for request in requests]
            # Chunks of prompts leave one state, drafts one each.
            widths = [stop - start for start, stop in pairwise(given["starts"])]
            given[f"whole_{group}"] = [width > 1 + n for width, n in zip(widths, given["drafts"], strict=True)]
    return run


def kept_before(run: list[Step], number: int, request: int) -> int:
    """Return how many tokens the step before gave a request, at least one."""
    if not number:
        return 1
    before = run[number - 1]
    sampled = dict(zip(before["scheduled"]["requests"], before["processed"]["sampled"], strict=True))
    return max(1, len(sampled.get(request, [])))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_set(1, "inputs", "states_1", 0, 23), ("blocks", "states", 0, 1, 5)),
        (_set(1, "scheduled", "states", 1, [1, [[20], [23]]]), ("blocks", "states", 0, 1, 5)),
        (_set(2, "scheduled", "blocks", 1, [1, [7, 3, 21]]), ("blocks", "states", 0, 2, 7)),
        (_set(0, "inputs", "goes_on_1", 0, True), ("inputs", "goes_on", 0, 0, 0)),
        (_set(2, "inputs", "goes_on_0", 1, False), ("inputs", "goes_on", 0, 2, 7)),
        (_set(2, "inputs", "kept_1", 1, 1), ("inputs", "kept", 0, 2, 7)),
        (_set(1, "inputs", "kept_0", 1, 2), ("inputs", "kept", 1, 1, 4)),
    ],
)
def test_a_state_lies_in_a_block_of_its_request_alone_which_goes_on_from_it_unless_it_begins(
    change: Callable[[list[Step]], None], expected: tuple[str, str, int, int, int]
) -> None:
    run = hybrid_steps()
    assert judged(deepcopy(run)) is None
    change(run)
    breach = judged(run)
    assert breach is not None
    plane, variable, request, step, position = expected
    seen = (breach.plane, breach.variable, breach.request, breach.step, breach.position)
    assert seen == (plane, variable, name_of(request), step, position), breach


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        ([20, 30, 31, 32], None),
        # Behind its second token, and behind one that it does not have in this step.
        ([20, 31, 31, 32], (6, fact("state_in_block", block=30), fact("block", block=31))),
        ([20, 30, 31, 33], None),
        ([22, 30, 31, 32], (5, fact("state_in_block", block=20), fact("block", block=22))),
    ],
)
def test_a_state_behind_each_draft_lies_in_the_block_planned_for_it(
    left: list[int], expected: tuple[int, object, object] | None
) -> None:
    run = hybrid_steps()
    for step in run:
        held = dict(step["scheduled"]["states"]) | {0: [[20, 30, 31, 32], [21]]}
        step["scheduled"]["states"] = [[request, held[request]] for request, _ in step["scheduled"]["blocks"]]
        # The other request has a state behind its first token alone.
        requests = step["scheduled"]["requests"]
        step["inputs"]["left_0"] = [[22] if request else [20, 30, 31, 32] for request in requests]
    starts, row = run[1]["inputs"]["starts"], run[1]["scheduled"]["requests"].index(0)
    assert starts[row + 1] - starts[row] == 3
    run[1]["inputs"]["left_0"][row] = left
    breach = judged(run)
    assert (breach is None) is (expected is None), breach
    if breach is not None:
        assert (breach.variable, breach.step) == ("states", 1)
        assert (breach.position, breach.expected, breach.actual) == expected


def test_a_state_that_is_left_behind_rejected_drafts_is_told_where_the_request_goes_on_from_it() -> None:
    run = hybrid_steps()
    # Its drafts of step 1 are not all accepted.
    drafts, sampled = run[1]["inputs"]["drafts"][0], run[1]["processed"]["sampled"][0]
    assert len(sampled) < 1 + drafts
    run[1]["inputs"]["whole_0"][0] = True
    breach = judged(run)
    assert breach is not None
    assert (breach.plane, breach.variable, breach.request, breach.step) == ("inputs", "kept", name_of(0), 2)
    assert breach.actual == fact("behind_kept", kept=1 + drafts)


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_state_is_copied_to_a_new_block_as_it_was_behind_what_was_kept_of_the_step_before(more: int) -> None:
    run = hybrid_steps()
    row, due = run[2]["scheduled"]["requests"].index(0), kept_before(run, 2, 0)
    assert due > 1
    # Of the others no state is copied.
    run[2]["inputs"]["copied"] = [
        due + more if number == row else 0 for number in range(len(run[2]["inputs"]["drafts"]))
    ]
    breach = judged(run)
    assert (breach is None) is (more == 0), breach
    if breach is not None:
        assert (breach.variable, breach.request, breach.step, breach.position) == ("copied", name_of(0), 2, 7)
        assert (breach.expected, breach.actual) == (
            fact("behind_kept", kept=due),
            fact("behind_kept", kept=due + more),
        )


def test_a_state_of_a_request_that_begins_is_copied_as_it_was_behind_one_token() -> None:
    run = hybrid_steps()
    run[1]["inputs"]["copied"] = [2 if request == 1 else 0 for request in run[1]["scheduled"]["requests"]]
    breach = judged(run)
    assert breach is not None
    assert (breach.variable, breach.request, breach.step) == ("copied", name_of(1), 1)
    assert breach.expected == fact("behind_kept", kept=1)


def test_a_state_left_behind_each_of_several_tokens_that_are_no_drafts_is_gone_on_from_behind_all_of_these() -> None:
    run = hybrid_steps()
    (width,) = run[0]["inputs"]["starts"][1:]
    for group in (0, 1):
        assert run[0]["inputs"][f"whole_{group}"] == [True]
        run[0]["inputs"][f"whole_{group}"] = [False]
    breach = judged(run)
    assert breach is not None
    assert (breach.plane, breach.variable, breach.request, breach.step) == ("inputs", "kept", name_of(0), 1)
    assert breach.expected == fact("behind_kept", kept=width)
    for group in (0, 1):
        run[1]["inputs"][f"kept_{group}"][0] = width
    assert judged(run) is None


@pytest.mark.parametrize(("slot", "is_told"), [(-1, False), (9, True)])
def test_what_only_fills_a_batch_up_is_written_nowhere(slot: int, is_told: bool) -> None:
    run = steps()
    for name, value in (("input_ids", 0), ("positions", 0), ("slots", slot)):
        run[1]["inputs"][name].append(value)
    found = judged(run)
    assert (found is not None) is is_told
    if found is not None:
        assert (found.plane, found.variable, found.request, found.step) == ("inputs", "slots", "", 1)

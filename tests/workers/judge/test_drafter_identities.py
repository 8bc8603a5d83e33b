"""Identities of a drafter: passes that keep them are passed over, each value that breaks one is reported."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from workers.judge.drafter_identities import DrafterIdentities
from workers.judge.judge import End
from workers.record.evidence import Difference, fact
from workers.record.observation import Observation

BLOCK, LENGTH_MAX, MASK = 4, 16, 30
Values = dict[str, Any]
# What is seen of a step: point and values, in order.
Step = list[tuple[str, Values]]
Run = list[Step]
PROMPT = [1, 2, 3, 4, 5]


def planned(computed: int, drafts: int, begun: Any = (), blocks: Any = (7, 8, 9)) -> tuple[str, Values]:
    return "scheduled", {
        "scheduled_computed": [computed],
        "planned_drafts": [drafts],
        "begun": list(begun),
        "blocks": [(0, list(blocks))],
        "follows": True,
    }


def slots(positions: list[int], blocks: tuple[int, ...] = (7, 8, 9)) -> list[int]:
    return [blocks[position // BLOCK] * BLOCK + position % BLOCK for position in positions]


def given(ids: list[int], positions: list[int], length: int) -> Values:
    here = slots(positions)
    return {"input_ids": ids, "positions": positions, "slots": here, "starts": [0, len(ids)], "seq_lens": [length]}


def inputs(drafts: int, ids: list[int], positions: list[int]) -> tuple[str, Values]:
    return "inputs", {"drafts": [drafts], **given(ids, positions, positions[-1] + 1)}


def drafting(index: int, ids: list[int], positions: list[int], length: int) -> tuple[str, Values]:
    return "drafting", {"index": index, "tables": [[7, 8, 9]], "bounds": [length], **given(ids, positions, length)}


def shifted() -> Run:
    """Return steps of a drafter that is given the next token at each position; of two drafts one is rejected."""
    return [
        [
            planned(0, 0, [(0, PROMPT)]),
            inputs(0, PROMPT, [0, 1, 2, 3, 4]),
            drafting(0, [2, 3, 4, 5, 6], [0, 1, 2, 3, 4], 5),
            ("margins", {"margins": [1.0]}),
            drafting(1, [20], [5], 6),
            ("margins", {"margins": [2.0]}),
            ("proposed", {"proposed": [[20, 21]]}),
            ("processed", {"sampled": [[6]]}),
        ],
        [
            planned(5, 2),
            inputs(2, [6, 20, 21], [5, 6, 7]),
            # What stands in the row of the rejected draft is nobody's.
            drafting(0, [20, 9, 99], [5, 6, 7], 8),
            drafting(1, [22], [7], 8),
            ("proposed", {"proposed": [[22, 23]]}),
            ("processed", {"sampled": [[20, 9]]}),
        ],
        [
            planned(7, 2),
            inputs(2, [9, 22, 23], [7, 8, 9]),
            drafting(0, [10, 22, 23], [7, 8, 9], 10),
            drafting(1, [24], [8], 9),
            ("proposed", {"proposed": [[24, 25]]}),
            ("processed", {"sampled": [[10]]}),
        ],
    ]


def at_once() -> Run:
    """Return steps of a drafter that keeps what was computed and is asked for all drafts in one pass."""
    return [
        [
            planned(0, 0, [(0, PROMPT)]),
            inputs(0, PROMPT, [0, 1, 2, 3, 4]),
            ("context", {"positions": [0, 1, 2, 3, 4], "slots": slots([0, 1, 2, 3, 4])}),
            drafting(0, [6, MASK, MASK], [5, 6, 7], 8),
            ("proposed", {"proposed": [[20, 21]]}),
            ("processed", {"sampled": [[6]]}),
        ],
        [
            planned(5, 2),
            inputs(2, [6, 20, 21], [5, 6, 7]),
            ("context", {"positions": [5, 6, 0], "slots": [*slots([5, 6]), -1]}),
            drafting(0, [9, MASK, MASK], [7, 8, 9], 10),
            ("proposed", {"proposed": [[22, 23]]}),
            ("processed", {"sampled": [[20, 9]]}),
        ],
    ]


def judge_of(
    run: Run,
    shift: int = 1,
    mask: int | None = None,
    chunk_ends_known: bool = True,
    drafts_max: int = 2,
) -> DrafterIdentities:
    judge = DrafterIdentities()
    sizes = {"block_size": BLOCK, "max_model_len": LENGTH_MAX}
    traits = {
        "draft_shift": shift,
        "mask_token": mask,
        "chunk_ends_known": chunk_ends_known,
        "drafts_max": drafts_max,
    }
    judge.see_log([Observation("opened", -1, (), sizes | traits)])
    for number, step in enumerate(run):
        judge.see_log([Observation(point, number, (0,), values) for point, values in step])
    return judge


def judged(run: Run, **traits: Any) -> Difference | None:
    return judge_of(run, **traits).at_end(End(len(run), {}))


def test_passes_that_keep_all_identities_are_passed_over() -> None:
    assert judged(shifted()) is None
    assert judged(at_once(), shift=0, mask=MASK) is None


def test_a_run_without_a_drafter_compares_nothing() -> None:
    run = [[seen for seen in step if seen[0] in ("scheduled", "inputs", "processed")] for step in shifted()]
    judge = judge_of(run)
    assert (judge.at_end(End(len(run), {})), judge.planes) == (None, ())


def _set(step: int, place: int, name: str, index: int, value: Any) -> Callable[[Run], None]:
    def change(run: Run) -> None:
        run[step][place][1][name][index] = value

    return change


def _without_pass(run: Run) -> None:
    del run[1][2:5]


WRONG: dict[str, tuple[Callable[[Run], None], tuple[str, int, int | None]]] = {
    "a token of the prompt": (_set(0, 2, "input_ids", 1, 2), ("draft_input_ids", 0, 1)),
    "the token just sampled": (_set(0, 2, "input_ids", 4, 5), ("draft_input_ids", 0, 4)),
    "the token behind an accepted draft": (_set(1, 2, "input_ids", 1, 21), ("draft_input_ids", 1, 6)),
    "the draft proposed last": (_set(1, 3, "input_ids", 0, 23), ("draft_input_ids", 1, 7)),
    "a position": (_set(1, 2, "positions", 1, 5), ("draft_positions", 1, 6)),
    "a position of a further pass": (_set(1, 3, "positions", 0, 6), ("draft_positions", 1, 7)),
    "a slot": (_set(0, 2, "slots", 3, 7 * BLOCK + 2), ("draft_slots", 0, 3)),
    "a slot in a block of nobody": (_set(1, 2, "slots", 2, 3 * BLOCK), ("draft_slots", 1, 7)),
    "a length that keeps the rejected draft": (_set(1, 3, "seq_lens", 0, 9), ("draft_seq_lens", 1, None)),
    "a bound of a length that is none": (_set(1, 3, "bounds", 0, 7), ("draft_bounds", 1, None)),
    "a draft that was not proposed": (_set(1, 1, "input_ids", 1, 21), ("verified", 1, 6)),
    "an entry that was overwritten": (_set(1, 2, "slots", 2, 7 * BLOCK + 1), ("draft_cache", 1, 1)),
    "a step without a pass": (_without_pass, ("passes", 1, None)),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_value_that_breaks_an_identity_is_reported_with_step_and_position(wrong: str) -> None:
    run = deepcopy(shifted())
    change, expected = WRONG[wrong]
    change(run)
    breach = judged(run)
    assert breach is not None
    assert (breach.plane, (breach.variable, breach.step, breach.position)) == ("drafts", expected)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_set(1, 2, "positions", 1, 5), ("draft_positions", 1, 6)),
        (_set(1, 2, "slots", 0, 7 * BLOCK), ("draft_slots", 1, 5)),
        (_set(1, 3, "input_ids", 0, 20), ("draft_input_ids", 1, 7)),
        (_set(1, 3, "input_ids", 2, 0), ("draft_input_ids", 1, 9)),
        (_set(1, 3, "seq_lens", 0, 11), ("draft_seq_lens", 1, None)),
    ],
)
def test_what_a_drafter_of_all_drafts_at_once_keeps_and_is_given_is_judged(
    change: Callable[[Run], None], expected: tuple[str, int, int | None]
) -> None:
    run = deepcopy(at_once())
    change(run)
    breach = judged(run, shift=0, mask=MASK)
    assert breach is not None
    assert (breach.variable, breach.step, breach.position) == expected


@pytest.mark.parametrize(("drafts", "breach"), [(0, None), (1, ("passes", 0, None))])
def test_no_pass_is_due_of_one_that_proposes_nothing_and_keeps_its_entries_unless_drafts_are_verified_next(
    drafts: int, breach: Any
) -> None:
    run = at_once()
    run[0][3:5] = [("proposed", {"proposed": [[]]})]
    run[1][1][1]["drafts"] = [drafts]
    run[1][1][1].update(given([6, 20][: 1 + drafts], [5, 6][: 1 + drafts], 6 + drafts))
    run[1][2][1].update({"positions": [5, 6][: 1 + drafts], "slots": slots([5, 6][: 1 + drafts])})
    run[1][3] = drafting(0, [20, MASK, MASK], [6, 7, 8], 9)
    run[1][5] = ("processed", {"sampled": [[20]]})
    found = judged(run, shift=0, mask=MASK)
    assert (found and (found.variable, found.step, found.position)) == breach
    # What was not kept is missed by who attends to it, later.
    del run[0][2]
    found = judged(run, shift=0, mask=MASK)
    assert found is not None
    assert found.variable == "passes"


def chunks(tail: int) -> Run:
    """Return a prompt in two chunks, the first of which ends with a token given for the next one."""
    first, second = PROMPT[:3], PROMPT[3:]
    return [
        [
            planned(0, 0, [(0, PROMPT)]),
            inputs(0, first, [0, 1, 2]),
            drafting(0, [2, 3, tail], [0, 1, 2], 3),
            ("proposed", {"proposed": [[20]]}),
            ("processed", {"sampled": [[]]}),
        ],
        [
            planned(3, 0),
            inputs(0, second, [3, 4]),
            drafting(0, [5, 6], [3, 4], 5),
            ("proposed", {"proposed": [[21]]}),
            ("processed", {"sampled": [[6]]}),
        ],
    ]


def test_a_chunk_ends_with_the_next_token_or_with_the_last_one_where_the_next_is_not_known() -> None:
    assert judged(chunks(4)) is None
    assert judged(chunks(5), chunk_ends_known=False) is None
    for tail, is_known in ((5, True), (4, False), (3, False)):
        breach = judged(chunks(tail), chunk_ends_known=is_known)
        assert breach is not None
        assert (breach.variable, breach.position) == ("draft_input_ids", 2)


@pytest.mark.parametrize(("is_known", "breach"), [(False, None), (True, ("draft_cache", 3, 2))])
def test_a_chunk_of_a_stay_that_an_earlier_result_may_come_into_ends_with_the_last_token_as_well(
    is_known: bool, breach: Any
) -> None:
    # The first stay has a token more than the second begins with; the session goes on from that one.
    part: Step = [
        planned(5, 0, [(0, [*PROMPT, 6, 7])]),
        inputs(0, [6, 7], [5, 6]),
        drafting(0, [7, 8], [5, 6], 7),
        ("proposed", {"proposed": [[20]]}),
        ("processed", {"sampled": [[8]]}),
    ]
    found = judged([shifted()[0], *chunks(5), part], chunk_ends_known=is_known)
    assert (found and (found.variable, found.step, found.position)) == breach


def test_no_pass_is_due_beside_a_request_that_is_about_to_reach_the_longest_length() -> None:
    run = shifted()
    run[1] = [seen for seen in run[1] if seen[0] in ("scheduled", "inputs", "processed")]
    run[2][1][1]["input_ids"][1:] = [0, 0]
    run[2][2][1]["input_ids"][1:] = [0, 0]
    judge = judge_of(run)
    judge.see_log([Observation("opened", -1, (), _sizes(10))])
    # What was due then is never written, and nobody is blamed for attending to it.
    assert judge.at_end(End(3, {})) is None
    assert [length for _, length in judge.proposals] == [6]


@pytest.mark.parametrize(("drafts_max", "is_due"), [(9, True), (10, False)])
def test_room_for_the_most_drafts_is_kept_in_a_run_that_proposes_none(drafts_max: int, is_due: bool) -> None:
    run = shifted()[:2]
    # A step without drafts that computes one position, of which the drafter has no pass.
    run[0][2:7] = [drafting(0, [2, 3, 4, 5, 6], [0, 1, 2, 3, 4], 5), ("proposed", {"proposed": [[]]})]
    run[1] = [planned(5, 0), inputs(0, [6], [5]), ("processed", {"sampled": [[7]]})]
    found = judged(run, drafts_max=drafts_max)
    assert (found is not None and found.variable == "passes") == is_due


def _sizes(length: int) -> Values:
    traits = {"draft_shift": 1, "mask_token": None, "chunk_ends_known": True, "drafts_max": 2}
    return {"block_size": BLOCK, "max_model_len": length, **traits}


def test_an_entry_at_the_end_of_a_found_block_that_is_of_another_next_token_is_told_last() -> None:
    judge = judge_of(shifted())
    other = [
        Observation(
            "scheduled",
            3,
            (1,),
            {
                "scheduled_computed": [4],
                "planned_drafts": [0],
                "begun": [(1, [1, 2, 3, 4, 6, 7])],
                "blocks": [(1, [7, 5])],
                "follows": True,
            },
        ),
        Observation(
            "inputs",
            3,
            (1,),
            {
                "drafts": [0],
                "input_ids": [6, 7],
                "positions": [4, 5],
                "slots": [20, 21],
                "starts": [0, 2],
                "seq_lens": [6],
            },
        ),
        Observation(
            "drafting",
            3,
            (1,),
            {
                "index": 0,
                "input_ids": [7, 8],
                "positions": [4, 5],
                "slots": [20, 21],
                "starts": [0, 2],
                "seq_lens": [6],
                "bounds": [6],
                "tables": [[7, 5]],
            },
        ),
        Observation("proposed", 3, (1,), {"proposed": [[21]]}),
        Observation("processed", 3, (1,), {"sampled": [[8]]}),
    ]
    judge.see_log(other)
    breach = judge.at_end(End(4, {}))
    assert breach is not None
    assert (breach.variable, breach.position) == ("draft_cache", 3)
    assert breach.expected == fact("entry_of", token=6, position=3, request=1)
    assert breach.actual == fact("entry_of", token=5, position=3, request=0)


def test_proposals_are_kept_with_the_tokens_that_they_follow_and_their_margins() -> None:
    judge = judge_of(shifted())
    assert judge.at_end(End(3, {})) is None
    first = judge.proposals[0, 6]
    assert (first.tokens, first.drafts, first.margins) == ((*PROMPT, 6), (20, 21), (1.0, 2.0))
    assert judge.proposals[0, 8].tokens == (*PROMPT, 6, 20, 9)
    of_one_pass = judge_of(at_once(), shift=0, mask=MASK)
    assert of_one_pass.at_end(End(2, {})) is None
    assert (first.at_once, of_one_pass.proposals[0, 6].at_once) == (False, True)


def copied(of: str, lost: tuple[int, ...] = ()) -> tuple[str, Values]:
    """Return a copy of the first block of a request to a store, or from there to another block."""
    blocks = [7] if of == "store" else [5]
    values = {"phase": "copies", "of": of, "is_synchronous": False, "slots": [0], "blocks": blocks, "lost": list(lost)}
    return "transfer", values


@pytest.mark.parametrize(
    ("copies", "is_kept"),
    [
        ([copied("store"), copied("load")], True),
        ([copied("load")], False),
        ([copied("store"), copied("load", (0,))], False),
        ([copied("store", (0,)), copied("load")], False),
    ],
)
def test_entries_are_followed_into_a_store_and_back(copies: Step, is_kept: bool) -> None:
    again: Step = [
        planned(4, 0, [(0, [*PROMPT, 6])], blocks=(5, 8, 9)),
        inputs(0, [5, 6], [4, 5]),
        drafting(0, [6, 9], [4, 5], 6),
        drafting(1, [20], [6], 7),
        ("proposed", {"proposed": [[20, 21]]}),
        ("processed", {"sampled": [[9]]}),
    ]
    found = judged([[*shifted()[0], *copies], again])
    assert (found is None) is is_kept
    assert found is None or (found.variable, found.position) == ("draft_cache", 0)

"""Model inputs: consistent steps are accepted, each wrong value is reported."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.workers.judge.histories import Part, changed, first_of, opened, reported, shown, step_of, without
from workers.judge.history import History
from workers.judge.model_inputs import ModelInputs
from workers.record.engine_records import EngineRecord
from workers.record.evidence import Difference, fact

VOCABULARY, BLOCK = 32, 4
OPENED = opened(vocab_size=VOCABULARY, block_size=BLOCK, state_sizes=[64, 64], max_model_len=10)
PROMPT, OTHER = [1, 2, 3, 4, 5], [1, 2, 3, 4, 9]
WHERE = "variable", "request", "step", "position"


def steps(states: Sequence[Sequence[Sequence[int]]] = ((), ()), **inputs: Any) -> list[EngineRecord]:
    """Return three steps of two requests, each processed after the next one is launched.

    The prompts begin with the same block, a prefix-cache hit of the second request. One draft token is rejected.
    `states` has the blocks of recurrent states by request and group; `inputs` replace columns of step 1.
    """
    first, second = states
    return [
        OPENED,
        *step_of(0, Part(0, 0, PROMPT, [7, 8], begun=PROMPT, states=first)),
        shown("corrected", 0, [0], mirror_computed=[0]),
        *step_of(
            1,
            Part(0, 5, [6, 11, 12], [7, 8], 2, states=first),
            Part(1, 4, [9], [7, 3], begun=OTHER, states=second),
            **inputs,
        ),
        shown("corrected", 1, [0, 1], mirror_computed=[5, 4]),
        shown("processed", 0, [0], sampled=[[6]]),
        # The scheduler takes a rejected draft token for computed; two planned draft tokens are removed again.
        *step_of(
            2,
            Part(1, 5, [20], [7, 3], states=second),
            Part(0, 7, [13], [7, 8, 9], states=first, kept=2),
            scheduled_computed=[5, 8],
            planned_drafts=[0, 2],
        ),
        shown("corrected", 2, [1, 0], mirror_computed=[5, 7]),
        shown("processed", 1, [0, 1], sampled=[[11, 13], [20]]),
        shown("counted", 1, [0, 1], counted=[1, 2, 1]),
        shown("processed", 2, [1, 0], sampled=[[21], [14]]),
    ]


def first(seen: Sequence[EngineRecord]) -> Difference | None:
    return first_of(ModelInputs(), seen)


def test_model_inputs_of_consistent_steps_are_accepted() -> None:
    assert first(steps()) is None


@pytest.mark.parametrize(
    ("changes", "variable", "request_number", "position"),
    [
        ([(1, "inputs", "input_ids", 2, -1)], "input_ids", 0, 7),
        ([(1, "inputs", "input_ids", 1, VOCABULARY)], "input_ids", 0, 6),
        ([(0, "inputs", "input_ids", 3, 5)], "input_ids", 0, 3),
        ([(2, "inputs", "input_ids", 1, 11)], "input_ids", 0, 7),
        ([(1, "inputs", "drafts", 0, 1)], "input_ids", 0, 6),
        ([(1, "inputs", "positions", 1, 7)], "positions", 0, 6),
        ([(1, "inputs", "seq_lens", 1, 6)], "seq_lens", 1, None),
        ([(1, "inputs", "bounds", 1, 4)], "bounds", 1, None),
        ([(1, "inputs", "slots", 3, 3 * BLOCK + 1)], "slots", 1, 4),
        ([(1, "inputs", "slots", 3, 8 * BLOCK + 1)], "slots", 1, 4),
        (
            [(2, "inputs", "tables", 1, [7, 3, 9]), (2, "inputs", "slots", 1, 3 * BLOCK + 3)],
            "tables",
            0,
            7,
        ),
        ([(1, "scheduled", "blocks", 1, (1, [7, 8]))], "tables", 0, 5),
        # Both requests write the block that was planned for both.
        (
            [
                (1, "scheduled", "blocks", 1, (1, [7, 8])),
                (1, "inputs", "tables", 1, [7, 8]),
                (1, "inputs", "slots", 3, 8 * BLOCK),
            ],
            "tables",
            0,
            5,
        ),
        ([(1, "scheduled", "blocks", 0, (0, [7, 8, 9, 10]))], "held", 0, None),
        ([(2, "scheduled", "scheduled_computed", 0, 4)], "scheduled_computed", 1, None),
        ([(2, "scheduled", "scheduled_computed", 1, 10)], "scheduled_computed", 0, None),
        ([(2, "corrected", "mirror_computed", 1, 8)], "mirror_computed", 0, None),
        ([(1, "counted", "counted", 0, 2)], "counted_rows", None, None),
        ([(1, "counted", "counted", 1, 3)], "counted_drafts", None, None),
        ([(1, "counted", "counted", 2, -1)], "counted_accepted", None, None),
    ],
)
def test_model_inputs_with_a_wrong_value_are_reported(
    changes: list[tuple[object, ...]], variable: str, request_number: int | None, position: int | None
) -> None:
    request = "" if request_number is None else f"submit {request_number}"
    assert reported(first(changed(steps(), *changes)), *WHERE) == (variable, request, changes[0][0], position)


def test_model_inputs_that_are_not_shown_are_reported() -> None:
    assert reported(first(without(steps(), "inputs", step=1)), *WHERE) == ("inputs", "", 1, None)


def test_model_inputs_with_blocks_held_at_the_end_are_reported() -> None:
    found = first([*steps(), shown("drained", 3, leaks={"blocks": 2})])
    assert reported(found, "plane", "variable", "request") == ("books", "leaks", "")
    assert reported(found, "expected", "actual") == (fact("none_held", what="blocks"), 2)


def test_model_inputs_of_a_resumed_request_are_judged_from_its_first_token() -> None:
    tokens = [*PROMPT, 6, 11, 13, 14]
    again = step_of(3, Part(0, 0, tokens, [5, 6, 4], begun=tokens))
    seen = [*steps(), *again, shown("processed", 3, [0], sampled=[[15]])]
    assert first(seen) is None
    found = first(changed(seen, (3, "inputs", "input_ids", 8, 12)))
    assert reported(found, *WHERE) == ("input_ids", "submit 0", 3, 8)


@pytest.mark.parametrize(
    ("sampled", "num_drafts", "expected"),
    [([], 0, None), ([9], 0, ("sampled", 0, 3, (9,))), ([], 1, ("drafts", 1, 5, 1))],
)
def test_prefill_chunk_with_a_sampled_token_or_drafts_is_reported(
    sampled: list[int], num_drafts: int, expected: tuple[object, ...] | None
) -> None:
    seen = [
        OPENED,
        *step_of(0, Part(0, 0, PROMPT[:3], [7, 8], begun=PROMPT)),
        shown("processed", 0, [0], sampled=[sampled]),
        *step_of(1, Part(0, 3, [4, 5, 6][: 2 + num_drafts], [7, 8], num_drafts)),
        shown("processed", 1, [0], sampled=[[6]]),
    ]
    assert reported(first(seen), "variable", "step", "position", "actual") == expected


@pytest.mark.parametrize(("draft", "is_reported"), [(-1, True), (VOCABULARY, True), (9, False)])
def test_model_inputs_before_a_crash_are_judged_as_far_as_results_came(draft: int, is_reported: bool) -> None:
    # The inputs of step 2 depend on steps that were not processed, so they are not checked.
    changes = (1, "inputs", "input_ids", 2, draft), (2, "inputs", "positions", [4, 9])
    seen = changed(without(without(steps(), "processed", "counted", step=1), "processed", step=2), *changes)
    found = ModelInputs().before_crash(History.of(seen))
    assert reported(found, *WHERE) == (("input_ids", "submit 0", 1, 7) if is_reported else None)
    earlier = changed(seen, (0, "inputs", "seq_lens", [6]))
    assert reported(ModelInputs().before_crash(History.of(earlier)), "variable", "step") == ("seq_lens", 0)


STATES = [[20], [21]], [[22], [23]]


@pytest.mark.parametrize(
    ("change", "plane", "variable", "request_number", "position"),
    [
        ((1, "inputs", "states", 1, "states", 0, 23), "blocks", "states", 0, 5),
        ((1, "scheduled", "states", 1, (1, [[20], [23]])), "blocks", "states", 0, 5),
        ((2, "scheduled", "blocks", 0, (1, [7, 3, 21])), "blocks", "states", 0, 7),
        ((0, "inputs", "states", 1, "goes_on", 0, True), "inputs", "goes_on", 0, 0),
        ((2, "inputs", "states", 0, "goes_on", 1, False), "inputs", "goes_on", 0, 7),
        ((2, "inputs", "states", 1, "kept", 1, 1), "inputs", "kept", 0, 7),
        ((1, "inputs", "states", 0, "kept", 1, 2), "inputs", "kept", 1, 4),
    ],
)
def test_recurrent_state_in_a_wrong_block_or_of_wrong_tokens_is_reported(
    change: tuple[object, ...], plane: str, variable: str, request_number: int, position: int
) -> None:
    assert first(steps(STATES)) is None
    found = first(changed(steps(STATES), change))
    assert reported(found, "plane", *WHERE) == (plane, variable, f"submit {request_number}", change[0], position)


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        ([20, 30, 31, 32], None),
        ([20, 31, 31, 32], (6, fact("state_in_block", block=30), fact("block", block=31))),
        # The row has three tokens, hence three states.
        ([20, 30, 31, 33], None),
        ([22, 30, 31, 32], (5, fact("state_in_block", block=20), fact("block", block=22))),
    ],
)
def test_recurrent_state_after_a_draft_in_a_wrong_block_is_reported(
    left: list[int], expected: tuple[object, ...] | None
) -> None:
    planned = [20, 30, 31, 32]
    seen = changed(
        steps(([planned, [21]], STATES[1])),
        *((step, "inputs", "states", 0, "states", row, 20) for step, row in ((0, 0), (1, 0), (2, 1))),
        (0, "inputs", "states", 0, "left", [planned]),
        (1, "inputs", "states", 0, "left", [left, [22]]),
        (2, "inputs", "states", 0, "left", [[22], planned]),
    )
    found = first(seen)
    assert reported(found, "position", "expected", "actual") == expected
    assert found is None or (found.variable, found.step) == ("states", 1)


def test_recurrent_state_with_rejected_drafts_is_reported_in_the_next_step() -> None:
    found = first(changed(steps(STATES), (1, "inputs", "states", 0, "whole", 0, True)))
    assert reported(found, "plane", "variable", "request", "step") == ("inputs", "kept", "submit 0", 2)
    assert reported(found, "actual") == (fact("behind_kept", kept=3),)


@pytest.mark.parametrize(
    ("step", "copied", "expected"),
    [
        (2, [0, 2], None),
        (2, [0, 1], ("submit 0", 7, 2, 1)),
        (2, [0, 3], ("submit 0", 7, 2, 3)),
        # The state that a request begins with includes one token.
        (1, [0, 2], ("submit 1", 4, 1, 2)),
    ],
)
def test_copied_state_with_other_than_the_accepted_tokens_is_reported(
    step: int, copied: list[int], expected: tuple[str, int, int, int] | None
) -> None:
    found = first(changed(steps(STATES), (step, "inputs", "copied", copied)))
    if expected is not None:
        request, position, *counts = expected
        facts = (fact("behind_kept", kept=kept) for kept in counts)
        assert reported(found, *WHERE, "expected", "actual") == ("copied", request, step, position, *facts)
    assert (found is None) is (expected is None)


def test_state_after_each_token_of_a_prefill_must_include_all_of_them() -> None:
    seen = changed(steps(STATES), *((0, "inputs", "states", group, "whole", [False]) for group in (0, 1)))
    found = first(seen)
    assert reported(found, "plane", "variable", "request", "step") == ("inputs", "kept", "submit 0", 1)
    assert reported(found, "expected") == (fact("behind_kept", kept=len(PROMPT)),)
    kept = ((1, "inputs", "states", group, "kept", 0, len(PROMPT)) for group in (0, 1))
    assert first(changed(seen, *kept)) is None


@pytest.mark.parametrize(("slot", "expected"), [(-1, None), (9, ("inputs", "slots", "", 1))])
def test_padding_token_that_is_written_is_reported(slot: int, expected: tuple[object, ...] | None) -> None:
    padded = steps(input_ids=[6, 11, 12, 9, 0], positions=[5, 6, 7, 4, 0], slots=[33, 34, 35, 12, slot])
    assert reported(first(padded), "plane", "variable", "request", "step") == expected

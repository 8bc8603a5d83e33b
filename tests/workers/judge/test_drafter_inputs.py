"""Drafter inputs: consistent draft passes are accepted, each wrong value is reported."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from tests.workers.judge.histories import (
    Part,
    changed,
    first_of,
    opened,
    pass_of,
    reported,
    shown,
    slots_of,
    step_of,
    without,
)
from workers.judge.drafter_inputs import DrafterInputs, proposals_of
from workers.judge.history import History
from workers.record.engine_records import EngineRecord
from workers.record.evidence import Difference, fact

BLOCK, LENGTH_MAX, MASK = 4, 16, 30
PROMPT, TABLE = [1, 2, 3, 4, 5], [7, 8, 9]
WHERE = "variable", "step", "position"


def planned(number: int, first: int, ids: Sequence[int], drafts: int = 0, begun: Any = None) -> list[EngineRecord]:
    return step_of(number, Part(0, first, ids, TABLE, drafts, begun))


def drafting(number: int, index: int, ids: Sequence[int], first: int, length: int, request: int = 0) -> EngineRecord:
    """Return a draft pass with input tokens from position `first` on."""
    part = Part(request, first, ids, TABLE if request == 0 else [7, 5])
    return pass_of(number, index, part, seq_lens=[length], bounds=[length])


def proposed(number: int, drafts: Sequence[int], sampled: Sequence[int], request: int = 0) -> list[EngineRecord]:
    """Return the records of a step's proposed drafts and of its result."""
    return [
        shown("proposed", number, [request], proposed=[drafts]),
        shown("processed", number, [request], sampled=[sampled]),
    ]


def context(number: int, positions: Iterable[int], padding: int = 0) -> EngineRecord:
    slots = [*slots_of([*positions], TABLE, BLOCK), *[-1] * padding]
    return shown("context", number, [0], positions=[*positions, *[0] * padding], slots=slots)


def shifted() -> list[EngineRecord]:
    """Return steps of a drafter with shifted input ids; one of two drafts is rejected."""
    return [
        *planned(0, 0, PROMPT, begun=PROMPT),
        drafting(0, 0, [2, 3, 4, 5, 6], 0, 5),
        shown("margins", 0, [0], margins=[1.0]),
        drafting(0, 1, [20], 5, 6),
        shown("margins", 0, [0], margins=[2.0]),
        *proposed(0, [20, 21], [6]),
        *planned(1, 5, [6, 20, 21], 2),
        # The token in the row of the rejected draft does not matter.
        drafting(1, 0, [20, 9, 99], 5, 8),
        drafting(1, 1, [22], 7, 8),
        *proposed(1, [22, 23], [20, 9]),
        *planned(2, 7, [9, 22, 23], 2),
        drafting(2, 0, [10, 22, 23], 7, 10),
        drafting(2, 1, [24], 8, 9),
        *proposed(2, [24, 25], [10]),
    ]


def at_once() -> list[EngineRecord]:
    """Return steps of a parallel drafter, which proposes all drafts in one pass."""
    return [
        *planned(0, 0, PROMPT, begun=PROMPT),
        context(0, range(5)),
        drafting(0, 0, [6, MASK, MASK], 5, 8),
        *proposed(0, [20, 21], [6]),
        *planned(1, 5, [6, 20, 21], 2),
        context(1, [5, 6], padding=1),
        drafting(1, 0, [9, MASK, MASK], 7, 10),
        *proposed(1, [22, 23], [20, 9]),
    ]


def run_of(seen: Sequence[EngineRecord], shift: int = 1, mask: int | None = None, **sizes: Any) -> list[EngineRecord]:
    """Return the history of a drafter with a token shift or a mask token."""
    traits = {"draft_shift": shift, "mask_token": mask, "drafts_max": 2, "max_model_len": LENGTH_MAX, **sizes}
    return [opened(**traits), *seen]


def judged(seen: Sequence[EngineRecord], shift: int = 1, mask: int | None = None, **sizes: Any) -> Difference | None:
    return first_of(DrafterInputs(), run_of(seen, shift, mask, **sizes))


def test_drafter_inputs_of_consistent_passes_are_accepted() -> None:
    assert judged(shifted()) is None
    assert judged(at_once(), shift=0, mask=MASK) is None


def test_run_without_a_drafter_compares_nothing() -> None:
    seen = run_of(without(shifted(), "drafting", "margins", "proposed"))
    assert (first_of(DrafterInputs(), seen), DrafterInputs().compared(History.of(seen))) == (None, ())


@pytest.mark.parametrize(
    ("change", "variable", "position"),
    [
        ((0, "drafting", 0, "input_ids", 1, 2), "draft_input_ids", 1),
        # The token just sampled, the token after an accepted draft, and the draft proposed last.
        ((0, "drafting", 0, "input_ids", 4, 5), "draft_input_ids", 4),
        ((1, "drafting", 0, "input_ids", 1, 21), "draft_input_ids", 6),
        ((1, "drafting", 1, "input_ids", 0, 23), "draft_input_ids", 7),
        ((1, "drafting", 0, "positions", 1, 5), "draft_positions", 6),
        ((1, "drafting", 1, "positions", 0, 6), "draft_positions", 7),
        ((0, "drafting", 0, "slots", 3, 7 * BLOCK + 2), "draft_slots", 3),
        # A rejected draft is written into a block that the request does not hold, or over an entry.
        ((1, "drafting", 0, "slots", 2, 3 * BLOCK), "draft_slots", 7),
        ((1, "drafting", 0, "slots", 2, 7 * BLOCK + 1), "draft_cache", 1),
        # The length counts the rejected draft.
        ((1, "drafting", 1, "seq_lens", 0, 9), "draft_seq_lens", None),
        ((1, "drafting", 1, "bounds", 0, 7), "draft_bounds", None),
        ((1, "inputs", "input_ids", 1, 21), "verified", 6),
    ],
)
def test_drafter_input_with_a_wrong_value_is_reported(
    change: tuple[object, ...], variable: str, position: int | None
) -> None:
    found = judged(changed(shifted(), change))
    assert reported(found, "plane", *WHERE) == ("drafts", variable, change[0], position)


def test_drafter_without_a_pass_in_a_step_is_reported() -> None:
    assert reported(judged(without(shifted(), "drafting", "proposed", step=1)), *WHERE) == ("passes", 1, None)


@pytest.mark.parametrize(
    ("change", "variable", "position"),
    [
        ((1, "context", "positions", 1, 5), "draft_positions", 6),
        ((1, "context", "slots", 0, 7 * BLOCK), "draft_slots", 5),
        ((1, "drafting", 0, "input_ids", 0, 20), "draft_input_ids", 7),
        ((1, "drafting", 0, "input_ids", 2, 0), "draft_input_ids", 9),
        ((1, "drafting", 0, "seq_lens", 0, 11), "draft_seq_lens", None),
    ],
)
def test_parallel_drafter_with_a_wrong_value_is_reported(
    change: tuple[object, ...], variable: str, position: int | None
) -> None:
    found = judged(changed(at_once(), change), shift=0, mask=MASK)
    assert reported(found, *WHERE) == (variable, 1, position)


@pytest.mark.parametrize(("num_drafts", "expected"), [(0, None), (1, ("passes", 0, None))])
def test_parallel_drafter_that_proposes_nothing_needs_no_pass(num_drafts: int, expected: Any) -> None:
    stored = context(0, range(5))
    seen = [
        *planned(0, 0, PROMPT, begun=PROMPT),
        stored,
        *proposed(0, [], [6]),
        *planned(1, 5, [6, 20][: 1 + num_drafts], num_drafts),
        context(1, [5, 6][: 1 + num_drafts]),
        drafting(1, 0, [20, MASK, MASK], 6, 9),
        *proposed(1, [22, 23], [20]),
    ]
    assert reported(judged(seen, shift=0, mask=MASK), *WHERE) == expected
    # Without these entries a later step would attend to unwritten slots.
    seen.remove(stored)
    assert reported(judged(seen, shift=0, mask=MASK), "variable") == ("passes",)


def chunks(tail: int, number: int = 0) -> list[EngineRecord]:
    """Return a prompt in two prefill chunks; the first ends with a given input id."""
    return [
        *planned(number, 0, PROMPT[:3], begun=PROMPT),
        drafting(number, 0, [2, 3, tail], 0, 3),
        *proposed(number, [20], []),
        *planned(number + 1, 3, PROMPT[3:]),
        drafting(number + 1, 0, [5, 6], 3, 5),
        *proposed(number + 1, [21], [6]),
    ]


@pytest.mark.parametrize(
    ("tail", "is_known", "is_right"),
    [(4, True, True), (5, True, False), (5, False, True), (4, False, False), (3, False, False)],
)
def test_chunk_ends_with_the_next_token_or_the_last_if_that_is_unknown(
    tail: int, is_known: bool, is_right: bool
) -> None:
    found = judged(chunks(tail), chunk_ends_known=is_known)
    assert reported(found, *WHERE) == (None if is_right else ("draft_input_ids", 0, 2))


@pytest.mark.parametrize(("is_known", "expected"), [(False, None), (True, ("draft_cache", 3, 2))])
def test_chunk_of_a_stay_with_late_results_ends_with_the_last_token_too(is_known: bool, expected: Any) -> None:
    # The first stay has a token more than the second begins with; the third begins with all tokens of the second.
    part = [
        *planned(3, 5, [6, 7], begun=[*PROMPT, 6, 7]),
        drafting(3, 0, [7, 8], 5, 7),
        *proposed(3, [20], [8]),
    ]
    seen = [each for each in shifted() if each.step == 0]
    found = judged([*seen, *chunks(5, number=1), *part], chunk_ends_known=is_known)
    assert reported(found, *WHERE) == expected


def test_drafter_needs_no_pass_close_to_the_longest_length() -> None:
    changes = (2, "inputs", "input_ids", [9, 0, 0]), (2, "drafting", 0, "input_ids", [10, 0, 0])
    seen = run_of(changed(without(shifted(), "drafting", "proposed", step=1), *changes), max_model_len=10)
    # Entries of the step without a draft pass are not reported later.
    assert first_of(DrafterInputs(), seen) is None
    assert [length for _, length in proposals_of(History.of(seen))] == [6]


@pytest.mark.parametrize(("drafts_max", "expected"), [(9, ("passes", 1, None)), (10, None)])
def test_drafter_keeps_room_for_the_most_drafts_even_without_proposals(drafts_max: int, expected: Any) -> None:
    # A step without drafts computes one position, for which the drafter has no pass.
    seen = [
        *planned(0, 0, PROMPT, begun=PROMPT),
        drafting(0, 0, [2, 3, 4, 5, 6], 0, 5),
        *proposed(0, [], [6]),
        *planned(1, 5, [6]),
        shown("processed", 1, [0], sampled=[[7]]),
    ]
    assert reported(judged(seen, drafts_max=drafts_max), *WHERE) == expected


def test_entry_at_the_end_of_a_hit_with_another_token_is_reported_last() -> None:
    seen = [
        *shifted(),
        *step_of(3, Part(1, 4, [6, 7], [7, 5], begun=[1, 2, 3, 4, 6, 7])),
        drafting(3, 0, [7, 8], 4, 6, request=1),
        *proposed(3, [21], [8], request=1),
    ]
    found = judged(seen)
    assert reported(found, "variable", "position") == ("draft_cache", 3)
    wrong = fact("entry_of", token=6, position=3, request=1), fact("entry_of", token=5, position=3, request=0)
    assert reported(found, "expected", "actual") == wrong


def test_proposals_have_the_tokens_before_them_and_their_margins() -> None:
    proposals = proposals_of(History.of(run_of(shifted())))
    first = proposals[0, 6]
    assert (first.tokens, first.drafts, first.margins) == ((*PROMPT, 6), (20, 21), (1.0, 2.0))
    assert proposals[0, 8].tokens == (*PROMPT, 6, 20, 9)
    of_one_pass = proposals_of(History.of(run_of(at_once(), shift=0, mask=MASK)))
    assert (first.at_once, of_one_pass[0, 6].at_once) == (False, True)


def copied(of: str, lost: Sequence[int] = ()) -> EngineRecord:
    """Return a copy of the first block of a request to a store, or from there to another block."""
    return shown("transfer", 0, [0], phase="copies", of=of, blocks=[7 if of == "store" else 5], lost=lost)


@pytest.mark.parametrize(
    ("copies", "expected"),
    [
        ([copied("store"), copied("load")], None),
        ([copied("load")], ("draft_cache", 1, 0)),
        ([copied("store"), copied("load", [0])], ("draft_cache", 1, 0)),
        ([copied("store", [0]), copied("load")], ("draft_cache", 1, 0)),
    ],
)
def test_drafter_entries_are_followed_into_a_store_and_back(copies: list[EngineRecord], expected: Any) -> None:
    table, tokens = [5, 8, 9], [*PROMPT, 6]
    again = [
        *step_of(1, Part(0, 4, [5, 6], table, begun=tokens)),
        drafting(1, 0, [6, 9], 4, 6),
        drafting(1, 1, [20], 6, 7),
        *proposed(1, [20, 21], [9]),
    ]
    first = [each for each in shifted() if each.step == 0]
    assert reported(judged([*first, *copies, *again]), *WHERE) == expected


@pytest.mark.parametrize(("after", "expected"), [(1, None), (0, ("draft_cache", 1, 1))])
def test_late_pass_writes_after_the_step_that_it_runs_after(after: int, expected: Any) -> None:
    # Block 5 has the prefill chunk of request 1; request 0 gets it for its drafts after request 1 has ended.
    tokens = [1, 2, 3, 4, 15, 16]
    prompts = Part(0, 0, PROMPT, [7, 8], begun=PROMPT), Part(1, 0, tokens[:4], [5], begun=tokens)
    rest = Part(1, 4, tokens[4:], [5, 6])
    seen = [
        *step_of(0, *prompts),
        pass_of(0, 0, prompts[0]._replace(input_ids=[2, 3, 4, 5, 6]), prompts[1]._replace(input_ids=[2, 3, 4, 15])),
        *step_of(1, rest, blocks=[(1, [5, 6]), (0, [7, 8])]),
        pass_of(1, 0, rest._replace(input_ids=[16, 9])),
        shown("processed", 0, [0, 1], sampled=[[6], []]),
        shown("processed", 1, [1], sampled=[[9]]),
        shown("proposed", 0, [0], proposed=[[20, 21]]),
        pass_of(0, 1, Part(0, 5, [20], [7, 5]), blocks=[(0, [7, 5])], behind=after),
    ]
    found = judged(seen)
    assert reported(found, *WHERE) == expected
    assert found is None or found.request == "submit 1"

"""Prefix-cache hits: registered blocks that were not taken must be hit."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.workers.judge.histories import Part, first_of, opened, reported, shown, step_of
from workers.judge.prefix_hits import PrefixHits
from workers.record.engine_records import EngineRecord
from workers.record.evidence import Difference, fact

SIZE, WINDOW = 2, 3
# A block of full attention is four times as long as a block of a sliding-window group.
LONG = 8
PROMPT = list(range(1, 22))


def planned(number: int, request: int, hit: int, tokens: Sequence[int] = PROMPT, **plan: Any) -> list[EngineRecord]:
    """Return a step in which a request begins and computes all tokens after its hit."""
    full, held = (range(request * 100 + first, request * 100 + first + 50) for first in (1, 50))
    blocks, windows = full[: -(-len(tokens) // LONG)], [held[: -(-len(tokens) // SIZE)]]
    row = Part(request, hit, tokens[hit:], blocks, begun=tokens, windows=windows)
    return step_of(number, row, size=LONG, **{"lookups": [(request, 0)], **plan})


def judged(
    seen: Sequence[EngineRecord],
    shift: int = 0,
    windows: Sequence[tuple[int, int]] = ((SIZE, WINDOW),),
    ahead: int = 0,
) -> Difference | None:
    """Return the difference in a run; `shift` is the token shift of its drafter, if any."""
    head = opened(block_size=LONG, windows=windows, draft_shift=shift, hash_ahead=ahead)
    return first_of(PrefixHits(drafts=shift > 0), [head, *seen])


FIRST = planned(0, 0, 0)


@pytest.mark.parametrize(("shift", "least"), [(0, 16), (1, 8)], ids=["all whole blocks", "one less with a drafter"])
def test_prompt_that_comes_again_is_found_up_to_its_last_whole_block(shift: int, least: int) -> None:
    for hit, is_reported in ((least, False), (least - 8, True)):
        found = judged([*FIRST, *planned(1, 1, hit)], shift)
        expected = ("hits", 1, fact("at_least", least=least)) if is_reported else None
        assert reported(found, "variable", "step", "expected") == expected


@pytest.mark.parametrize(("ahead", "own", "least"), [(1, 17, 16), (1, 16, 0), (2, 17, 0), (2, 18, 16)])
def test_block_whose_hash_covers_a_differing_token_is_not_found(ahead: int, own: int, least: int) -> None:
    # A window's blocks before position 8 are not kept, so there is no shorter hit.
    other = [*PROMPT[:own], *(30 + token for token in PROMPT[own:])]
    for hit in (0, 16):
        found = judged([*FIRST, *planned(1, 1, hit, other)], 1, ahead=ahead)
        assert reported(found, "expected") == (None if hit >= least else (fact("at_least", least=least),))


def test_hit_is_required_by_plans_without_model_inputs() -> None:
    first = shown(
        "scheduled", 0, [0], begun=[(0, PROMPT)], blocks=[(0, [1, 2, 3])], num_tokens=[len(PROMPT)], lookups=[(0, 0)]
    )
    for hit in (16, 8):
        begun: dict[str, Any] = {"begun": [(1, PROMPT)], "blocks": [(1, [1, 2, 4])], "scheduled_computed": [hit]}
        again = shown("scheduled", 1, [1], **begun, num_tokens=[len(PROMPT) - hit], lookups=[(1, 0)])
        found = judged([first, again], windows=())
        assert reported(found, "expected") == (None if hit == 16 else (fact("at_least", least=16),))


# The last block of the window before position 16.
TAKEN = {"taken": [57]}


@pytest.mark.parametrize(
    ("seen", "is_found"),
    [
        (planned(1, 1, 0), True),
        (planned(1, 1, 0, **TAKEN, lookups=[(1, 0)]), True),
        (planned(1, 1, 0, **TAKEN, lookups=[(1, 1)]), False),
        ([shown("controlled", 0, what="cleared"), *planned(1, 1, 0)], False),
        (planned(1, 1, 0, lookups=[]), False),
    ],
    ids=["kept", "taken after the lookup", "taken before the lookup", "cleared", "reads no cache"],
)
def test_block_taken_before_the_lookup_or_cleared_need_not_be_found(seen: list[EngineRecord], is_found: bool) -> None:
    assert (judged([*FIRST, *seen]) is not None) is is_found


# Another prompt differs from the first one within its second long block.
OTHER = [*PROMPT[:12], *range(40, 49)]


@pytest.mark.parametrize(
    ("windows", "hit", "is_reported"), [([(SIZE, WINDOW)], 0, False), ([], 0, True), ([], 8, False)]
)
def test_blocks_of_a_window_are_kept_only_where_a_prompt_ends(
    windows: list[tuple[int, int]], hit: int, is_reported: bool
) -> None:
    assert (judged([*FIRST, *planned(1, 1, hit, OTHER)], windows=windows) is not None) is is_reported


@pytest.mark.parametrize("in_flight", [False, True], ids=["known when planned", "in flight when planned"])
def test_block_that_ends_with_an_output_token_is_found_if_the_scheduler_knew_it(in_flight: bool) -> None:
    prompt, token, blocks = PROMPT[: LONG - 1], PROMPT[LONG - 1], [1]
    first = step_of(0, Part(0, 0, prompt, blocks, begun=prompt), size=LONG, lookups=[(0, 0)])
    second = step_of(1, Part(0, LONG - 1, [token], blocks), size=LONG)
    sampled = [shown("processed", 0, [0], sampled=[[token]])]
    ended = shown("processed", 1, [0], sampled=[[PROMPT[LONG]]])
    seen = [*first, *second, *sampled, ended] if in_flight else [*first, *sampled, *second, ended]
    for hit in (0, LONG):
        found = judged([*seen, *planned(2, 1, hit)], windows=())
        assert reported(found, "expected") == (None if hit or in_flight else (fact("at_least", least=LONG),))

"""Hits of the prefix cache: what was registered and not taken is found, whatever else happened."""

from collections.abc import Sequence
from typing import Any

import pytest

from workers.judge.hits import Hits
from workers.judge.judge import End
from workers.record.evidence import Difference, fact
from workers.record.observation import Observation

SIZE, WINDOW = 2, 3
# Blocks of full attention are four times as long as those of windows.
LONG = 8
PROMPT = list(range(1, 22))


def opened(
    shift: int = 0, windows: Sequence[tuple[int, int]] = ((SIZE, WINDOW),), size: int = LONG, ahead: int = 0
) -> Observation:
    values = {"block_size": size, "windows": list(windows), "draft_shift": shift, "hash_ahead": ahead}
    return Observation("opened", -1, (), values)


def planned(
    number: int, request: int, hit: int, tokens: Sequence[int] = PROMPT, taken: Sequence[int] = (), **more: Any
) -> list[Observation]:
    """Return a step in which a request begins, and computes all of its tokens but those that it found."""
    blocks = [request * 100 + index for index in range(1, 1 + -(-len(tokens) // LONG))]
    held = [request * 100 + 50 + index for index in range(-(-len(tokens) // SIZE))]
    values = {
        "scheduled_computed": [hit],
        "begun": [(request, list(tokens))],
        "blocks": [(request, blocks)],
        "windows": [(request, [held])],
        "taken": list(taken),
        "lookups": [(request, 0)],
        **more,
    }
    inputs = {"starts": [0, len(tokens) - hit], "positions": list(range(hit, len(tokens)))}
    return [Observation("scheduled", number, (request,), values), Observation("inputs", number, (request,), inputs)]


def judged(seen: Sequence[Observation], drafts: bool = False, head: Observation | None = None) -> Difference | None:
    judge = Hits(drafts)
    judge.see_log([head or opened(), *seen])
    return judge.at_end(End(2, {}))


@pytest.mark.parametrize(
    ("shift", "least"),
    [
        # All of the prompt but what is behind the last long block.
        (0, 16),
        # One long block less, as a drafter drops what is behind it.
        (1, 8),
    ],
)
def test_a_prompt_that_comes_again_is_found_up_to_the_last_whole_block(shift: int, least: int) -> None:
    for hit in (least, least - 8):
        found = judged([*planned(0, 0, 0), *planned(1, 1, hit)], drafts=bool(shift), head=opened(shift))
        assert (found is None) == (hit == least)
        assert found is None or (found.variable, found.step, found.expected) == (
            "hits",
            1,
            fact("at_least", least=least),
        )


@pytest.mark.parametrize(("ahead", "own", "least"), [(1, 17, 16), (1, 16, 0), (2, 17, 0), (2, 18, 16)])
def test_who_parts_from_others_within_what_a_hash_covers_does_not_find_its_block(
    ahead: int, own: int, least: int
) -> None:
    # A window's blocks in front of position 8 are not kept: no shorter hit is there.
    other = [*PROMPT[:own], *(30 + token for token in PROMPT[own:])]
    for hit in (0, 16):
        found = judged([*planned(0, 0, 0), *planned(1, 1, hit, other)], drafts=True, head=opened(1, ahead=ahead))
        assert (found is None) == (hit >= least)
        assert found is None or found.expected == fact("at_least", least=least)


def test_what_was_taken_before_the_cache_was_looked_through_is_not_there() -> None:
    # The last block of the window in front of position 16, once before the lookup, once for the request itself.
    gone = 57
    assert judged([*planned(0, 0, 0), *planned(1, 1, 0, taken=[gone], lookups=[(1, 1)])]) is None
    assert judged([*planned(0, 0, 0), *planned(1, 1, 0, taken=[gone], lookups=[(1, 0)])]) is not None


def test_nothing_is_there_behind_a_clearing_and_nobody_is_asked_who_reads_no_cache() -> None:
    cleared = Observation("controlled", 0, (), {"what": "cleared"})
    assert judged([*planned(0, 0, 0), cleared, *planned(1, 1, 0)]) is None
    assert judged([*planned(0, 0, 0), *planned(1, 1, 0, lookups=[])]) is None


def test_of_a_window_nothing_is_kept_where_no_prompt_ends() -> None:
    # Another prompt parts from the first inside its first long block but one.
    other = [*PROMPT[:12], *range(40, 49)]
    assert judged([*planned(0, 0, 0), *planned(1, 1, 0, other)]) is None
    # Of full attention alone all is.
    alone = opened(windows=(), size=LONG)
    assert judged([*planned(0, 0, 0), *planned(1, 1, 0, other)], head=alone) is not None
    assert judged([*planned(0, 0, 0), *planned(1, 1, 8, other)], head=alone) is None

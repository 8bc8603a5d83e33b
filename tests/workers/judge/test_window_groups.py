"""Window groups: entries in a window are checked, entries before it are not."""

from collections.abc import Sequence

import pytest

from tests.workers.judge.histories import Part, changed, first_of, opened, reported, step_of
from workers.judge.window_groups import WindowGroups
from workers.record.engine_records import EngineRecord
from workers.record.evidence import Difference

SIZE, WINDOW = 2, 4
TOKENS = [5, 6, 7, 8, 9, 10, 11, 12]


def row(first: int, last: int, held: Sequence[int], full: Sequence[int], begins: bool = False) -> Part:
    """Return a batch row from token `first` to `last`, with its window and other blocks."""
    return Part(0, first, TOKENS[first:last], full, begun=TOKENS if begins else None, windows=[held])


def judged(rows: Sequence[Part], *changes: tuple[object, ...]) -> Difference | None:
    seen: list[EngineRecord] = [opened(block_size=SIZE, windows=[(SIZE, WINDOW)])]
    for number, each in enumerate(rows):
        seen += step_of(number, each, size=SIZE)
    return first_of(WindowGroups(), changed(seen, *changes))


# The first block of the window is before the window in the last step.
ROWS = (
    row(0, 3, [1, 2], [11, 12], begins=True),
    row(3, 6, [1, 2, 3], [11, 12, 13]),
    row(6, 8, [0, 2, 3, 4], [11, 12, 13, 14]),
)


def test_block_before_a_window_may_be_freed() -> None:
    assert judged(ROWS) is None


def test_padding_token_without_a_slot_is_accepted() -> None:
    assert judged(ROWS, (2, "inputs", "windows", 0, "slots", [8, 9, -1])) is None


@pytest.mark.parametrize(
    ("rows", "changes", "expected"),
    [
        # The window of position 6 begins at position 3.
        ((*ROWS[:2], row(6, 8, [0, 0, 3, 4], [11, 12, 13, 14])), [], ("blocks", "window_tables", 2, 3)),
        (
            ROWS,
            [(2, "inputs", "windows", 0, "tables", [[0, 9, 3, 4]])],
            ("blocks", "window_tables", 2, 3),
        ),
        (ROWS, [(2, "inputs", "windows", 0, "slots", 0, 19)], ("inputs", "window_slots", 2, 6)),
        (ROWS, [(2, "inputs", "windows", 0, "slots", [8, 9, 3])], ("inputs", "window_slots", 2, None)),
        (
            ROWS,
            [
                (2, "scheduled", "windows", [(0, [[0, 2, 3, 4]]), (1, [[4]])]),
                (2, "scheduled", "blocks", [(0, [11, 12, 13, 14]), (1, [15])]),
            ],
            ("blocks", "window_tables", 2, 6),
        ),
        # In the step before another group has written what is in the window's block.
        (
            (ROWS[0], row(3, 6, [1, 2, 3], [11, 2, 13]), row(6, 8, [0, 2, 3, 4], [11, 2, 13, 14])),
            [],
            ("blocks", "window_tables", 1, 2),
        ),
        (ROWS, [(1, "inputs", "windows", 0, "slots", [6, 5, 7])], ("inputs", "window_slots", 1, 3)),
    ],
    ids=["freed", "not planned", "written elsewhere", "padding written", "of another", "of full attention", "swapped"],
)
def test_window_with_wrong_blocks_is_reported(
    rows: Sequence[Part], changes: list[tuple[object, ...]], expected: tuple[object, ...]
) -> None:
    assert reported(judged(rows, *changes), "plane", "variable", "step", "position") == expected


@pytest.mark.parametrize(
    ("held", "full", "expected"),
    [
        # A window sees the last tokens, full attention sees all.
        ([0, 2, 3], [11, 12, 13], None),
        ([0, 2, 4], [11, 12, 13], ("attended", 4)),
        ([0, 2, 3], [12, 12, 13], ("attended", 0)),
    ],
)
def test_entries_of_other_tokens_after_a_hit_are_reported(
    held: list[int], full: list[int], expected: tuple[object, ...] | None
) -> None:
    again = row(6, 8, [*held, 5], [*full, 15], begins=True)
    assert reported(judged([*ROWS, again]), "variable", "position") == expected

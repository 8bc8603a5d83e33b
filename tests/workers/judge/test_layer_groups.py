"""Layer groups: what a window sees is judged, whatever lies behind it is not."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from workers.judge.judge import End
from workers.judge.layer_groups import LayerGroups
from workers.record.evidence import Difference
from workers.record.observation import Observation

SIZE, WINDOW = 2, 4
TOKENS = [5, 6, 7, 8, 9, 10, 11, 12]
OPENED = Observation("opened", -1, (), {"block_size": SIZE, "windows": [(SIZE, WINDOW)]})
Step = dict[str, dict[str, Any]]


def step(number: int, first: int, last: int, held: Sequence[int], full: Sequence[int], begins: bool = False) -> Step:
    """Return the plan and the inputs of a step that computes the tokens of one request from the first on."""
    positions = list(range(first, last))
    slots = [[table[each // SIZE] * SIZE + each % SIZE for each in positions] for table in (full, held)]
    return {
        "scheduled": {
            "scheduled_computed": [first],
            "begun": [(0, TOKENS)] if begins else [],
            "blocks": [(0, list(full))],
            "windows": [(0, [list(held)])],
        },
        "inputs": {
            "starts": [0, len(positions)],
            "positions": positions,
            "input_ids": TOKENS[first:last],
            "slots": slots[0],
            "tables": [list(full)],
            "window_slots_0": [*slots[1], -1],
            "window_tables_0": [list(held)],
        },
    }


def run() -> list[Step]:
    """Return the steps of a request whose first block is behind the window in the last of them."""
    return [
        step(0, 0, 3, [1, 2], [11, 12], begins=True),
        step(1, 3, 6, [1, 2, 3], [11, 12, 13]),
        step(2, 6, 8, [0, 2, 3, 4], [11, 12, 13, 14]),
    ]


def judged(steps: Sequence[Step]) -> Difference | None:
    judge = LayerGroups()
    judge.see_log([OPENED])
    for number, each in enumerate(steps):
        judge.see_log([Observation(point, number, (0,), values) for point, values in each.items()])
    return judge.at_end(End(len(steps), {}))


def test_blocks_behind_a_window_may_be_given_up() -> None:
    assert judged(run()) is None


def _given_up(steps: list[Step]) -> None:
    # The window of position 6 begins at position 3.
    steps[2] = step(2, 6, 8, [0, 0, 3, 4], [11, 12, 13, 14])


def _not_planned(steps: list[Step]) -> None:
    steps[2]["inputs"]["window_tables_0"] = [[0, 9, 3, 4]]


def _written_elsewhere(steps: list[Step]) -> None:
    steps[2]["inputs"]["window_slots_0"][0] = 19


def _padding_written(steps: list[Step]) -> None:
    steps[2]["inputs"]["window_slots_0"][-1] = 3


def _of_another(steps: list[Step]) -> None:
    steps[2]["scheduled"]["windows"].append((1, [[4]]))
    steps[2]["scheduled"]["blocks"].append((1, [15]))


def _taken_by_full_attention(steps: list[Step]) -> None:
    # In the step before another group has written what is in the window's block.
    steps[1] = step(1, 3, 6, [1, 2, 3], [11, 2, 13])
    steps[2] = step(2, 6, 8, [0, 2, 3, 4], [11, 2, 13, 14])


def _other_tokens(steps: list[Step]) -> None:
    steps[1]["inputs"]["window_slots_0"][:2] = reversed(steps[1]["inputs"]["window_slots_0"][:2])


@pytest.mark.parametrize(
    ("break_it", "found"),
    [
        (_given_up, ("blocks", "window_tables", 2, 3)),
        (_not_planned, ("blocks", "window_tables", 2, 3)),
        (_written_elsewhere, ("inputs", "window_slots", 2, 6)),
        (_padding_written, ("inputs", "window_slots", 2, None)),
        (_of_another, ("blocks", "window_tables", 2, 6)),
        (_taken_by_full_attention, ("blocks", "window_tables", 1, 2)),
        (_other_tokens, ("inputs", "window_slots", 1, 3)),
    ],
)
def test_what_a_window_sees_is_where_it_is_planned(
    break_it: Callable[[list[Step]], None], found: tuple[str, str, int, int | None]
) -> None:
    steps = run()
    break_it(steps)
    difference = judged(steps)
    assert difference is not None
    assert (difference.plane, difference.variable, difference.step, difference.position) == found


@pytest.mark.parametrize(
    ("blocks", "position"),
    [
        # Of a window the last tokens are seen, of full attention all.
        (([0, 2, 3], [11, 12, 13]), None),
        (([0, 2, 4], [11, 12, 13]), 4),
        (([0, 2, 3], [12, 12, 13]), 0),
    ],
)
def test_a_request_that_begins_behind_a_hit_attends_to_entries_of_its_own_tokens(
    blocks: tuple[list[int], list[int]], position: int | None
) -> None:
    held, full = blocks
    again = step(3, 6, 8, [*held, 5], [*full, 15], begins=True)
    difference = judged([*run(), again])
    assert (difference and (difference.variable, difference.position)) == (
        None if position is None else ("attended", position)
    )

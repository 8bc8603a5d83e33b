"""What the host tells the device about a step: the padded shape of its batch and the tables that are copied over."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec
from workers.engine.input_batch import Row
from workers.engine.memory import capture_size
from workers.engine.request import PlanRow
from workers.kernels.signature import NO_PREVIOUS_ROW, PAD_BLOCK, PAD_ROW, PAD_STATE_SLOT


@dataclass(frozen=True, slots=True)
class Shape:
    """The padded layout of a batch: its rows and tokens, and where each row's tokens start.

    A uniform batch (every row verifies K drafts) has 1 + K tokens in every row, padding rows too; any other is ragged
    with its padding at the end.
    """

    num_rows: int
    num_tokens: int
    starts: tuple[int, ...]
    uniform: bool


def is_uniform(rows: Sequence[PlanRow], width: int) -> bool:
    """Tell whether every row verifies width - 1 drafts; a prompt of `width` tokens is no decode."""
    return all(row.n == width and row.d == width - 1 for row in rows)


def pad_state_slots(rows: Sequence[Row], num_pads: int) -> list[int]:
    """Return the state slots of the padding rows behind `rows`: none has one."""
    return [PAD_STATE_SLOT] * num_pads


def shape_of(rows: Sequence[Row], spec: EngineSpec, is_uniform: Callable[[Sequence[PlanRow], int], bool]) -> Shape:
    """Lay out the rows of a step."""
    lengths = [row.plan.n for row in rows]
    width = 1 + spec.num_speculative_tokens
    uniform = is_uniform([row.plan for row in rows], width)
    starts, total = [], 0
    for length in lengths:
        starts.append(total)
        total += length
    if not spec.pad:
        return Shape(len(rows), total, tuple(starts), uniform)
    num_rows = capture_size(len(rows))
    if uniform:
        return Shape(num_rows, num_rows * width, tuple(range(0, num_rows * width, width)), True)
    num_tokens = -(-total // spec.token_multiple) * spec.token_multiple
    return Shape(num_rows, num_tokens, (*starts, *(total for _ in range(num_rows - len(rows)))), False)


def backup_tokens(rows: Sequence[Row], backup_index: Callable[[int, int], int]) -> list[int]:
    """Return, for each row, the token its drafter goes on from when nothing is sampled."""
    return [row.token(backup_index(row.num_tokens_no_spec, row.num_computed + row.plan.n)) for row in rows]


def row_params(rows: Sequence[Row]) -> list[SamplingParams]:
    """Return how each row is sampled: as its request says or, where nothing is sampled, greedily."""
    greedy = SamplingParams()
    return [greedy if row.plan.discard else row.plan.request.params for row in rows]


def row_table(
    rows: Sequence[Row],
    before: Sequence[PlanRow],
    shape: Shape,
    prev_positions: list[int],
    backups: list[int],
    accepted: list[int],
    taken_over: list[int],
    pad_state_slots: Callable[[Sequence[Row], int], list[int]],
) -> list[list[int]]:
    """Return the fields of `memory.FIELDS`, row by row and padded; two of them by the rows of the step before."""
    width = max(shape.num_rows, len(before))
    pad = [0] * (width - len(rows))
    rest = [0] * (width - len(before))
    return [
        [row.num_computed for row in rows] + pad,
        [row.plan.n for row in rows] + pad,
        [row.plan.d for row in rows] + pad,
        prev_positions + [NO_PREVIOUS_ROW] * len(pad),
        [row.n for row in before] + rest,
        [row.d for row in before] + rest,
        [row.plan.request.state_slot for row in rows] + pad_state_slots(rows, len(pad)),
        [int(row.plan.discard) for row in rows] + pad,
        backups + pad,
        accepted + pad,
        [int(row.plan.invalid) for row in rows] + pad,
        list(shape.starts) + [0] * (width - shape.num_rows),
        taken_over + [PAD_BLOCK] * len(pad),
    ]


def token_table(rows: Sequence[Row], shape: Shape) -> tuple[list[int], list[int]]:
    """Return the host's token ids and the row of each token, padded."""
    ids, token_row = [0] * shape.num_tokens, [PAD_ROW] * shape.num_tokens
    for index, (row, start) in enumerate(zip(rows, shape.starts, strict=False)):
        n = row.plan.n
        ids[start : start + n] = row.ids()
        token_row[start : start + n] = [index] * n
    return ids, token_row


def write_block_table(table: NDArray[np.int64], rows: Sequence[Row]) -> None:
    """Write the blocks of every row into a table [rows, max_blocks]; what is past them is padding."""
    table.fill(PAD_BLOCK)
    for index, row in enumerate(rows):
        table[index, : len(row.blocks)] = row.blocks

"""Staging: pad the batch shape and write its input tables to pinned memory.

Every value is written where its copy reads it; values gathered before that are tuples. A number is written to several
elements with `fill`, because NumPy would first make an array for a slice assignment.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scenarios.features import is_switched_off
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec
from workers.engine.input_batch import Row
from workers.engine.memory import FIELDS, capture_size
from workers.engine.request import Plan, PlanRow
from workers.kernels.sentinels import NO_PREVIOUS_ROW, PAD_BLOCK, PAD_ROW, PAD_STATE_SLOT, UNKNOWN_TOKEN
from workers.lanes.lane import Lane, LaneEvent

_GREEDY = SamplingParams()
# The row of each of `memory.FIELDS` in the table of fields.
(
    COMPUTED_HOST,
    NUM_SCHEDULED,
    NUM_DRAFTS,
    PREV_POSITION,
    PREV_NUM_SCHEDULED,
    PREV_NUM_DRAFTS,
    STATE_SLOT,
    DISCARD,
    BACKUP,
    ACCEPTED_HOST,
    INVALID,
    QUERY_START,
    TAKEN_OVER,
) = range(len(FIELDS))


class Shape(NamedTuple):
    """The padded shape of a batch: number of rows, of tokens, and each row's first token.

    A uniform batch (every row verifies K draft tokens) has 1 + K tokens in every row, padding rows too; any other is
    ragged, with padding at the end. Three rows, `.` is padding, K = 2, tokens to a multiple of 4::

        ragged    a a a b c c . .           starts 0 3 4 6     token_row 0 0 0 1 2 2 - -
        uniform   a a a b b b c c c . . .   starts 0 3 6 9     token_row 0 0 0 1 1 1 2 2 2 - - -
    """

    num_rows: int
    num_tokens: int
    starts: tuple[int, ...]
    uniform: bool


def is_uniform(rows: Sequence[PlanRow], width: int) -> bool:
    """Return whether each row has one known token and `width` - 1 draft tokens.

    A prompt of `width` tokens is not a decode row.
    """
    return all(row.scheduled.n == width and row.scheduled.d == width - 1 for row in rows)


def pad_state_slots(rows: Sequence[Row], num_pads: int) -> Sequence[int]:
    """Return the state slots of padding rows: an invalid slot, so that no state changes.

    A dummy step has only padding rows.
    """
    return (PAD_STATE_SLOT,) * num_pads


def padded_shape(
    plans: Sequence[PlanRow], spec: EngineSpec, is_uniform: Callable[[Sequence[PlanRow], int], bool]
) -> Shape:
    """Return the padded shape of a step's rows: numbers of rows and tokens, first tokens."""
    width, num_rows = 1 + spec.num_speculative_tokens, len(plans)
    uniform = is_uniform(plans, width)
    padded = capture_size(num_rows) if spec.pad else num_rows
    if uniform:
        return Shape(padded, padded * width, tuple(range(0, padded * width, width)), True)
    ends = tuple(accumulate((plan.scheduled.n for plan in plans), initial=0))
    starts, total = ends[:-1], ends[-1]
    if not spec.pad:
        return Shape(num_rows, total, starts, False)
    num_tokens = -(-total // spec.token_multiple) * spec.token_multiple
    return Shape(padded, num_tokens, starts + (total,) * (padded - num_rows), False)


def shared_prefix(rows: Sequence[Row], block_size: int) -> int:
    """Return how many leading full blocks all rows share, by the host's counts."""
    count = min(row.num_computed for row in rows) // block_size
    first = rows[0].blocks
    for row in rows:
        count = next((column for column in range(count) if row.blocks[column] != first[column]), count)
    return count


def common_blocks(rows: Sequence[Row], spec: EngineSpec) -> int:
    """Return the number of leading blocks shared by all rows, for cascade attention; 0 if off."""
    if is_switched_off(spec, "cascade"):
        return 0
    return shared_prefix(rows, spec.block_size)


def max_lengths(rows: Sequence[Row]) -> tuple[int, int]:
    """Return the maximum sequence length and the maximum query length of a batch."""
    length_max = num_queries_max = 0
    for row in rows:
        num_queries = row.plan.scheduled.n
        length = row.num_computed + num_queries
        if length > length_max:
            length_max = length
        if num_queries > num_queries_max:
            num_queries_max = num_queries
    return length_max, num_queries_max


def backup_tokens(rows: Sequence[Row], backup_index: Callable[[int, int], int]) -> tuple[int, ...]:
    """Return by row the token from which the drafter continues if no sampled token is valid."""
    return tuple(
        row.token(backup_index(row.num_tokens_no_spec, row.num_computed + row.plan.scheduled.n)) for row in rows
    )


def row_params(rows: Sequence[Row]) -> Sequence[SamplingParams]:
    """Return the sampling parameters by row; greedy for a non-final prefill chunk."""
    return tuple(_GREEDY if row.plan.discard else row.plan.request.params for row in rows)


def blocks_to_poison(plan: Plan) -> tuple[int, ...]:
    """Return the blocks to overwrite with poison: newly allocated ones and evicted ones."""
    given = tuple(chain.from_iterable(row.scheduled.blocks.new for row in plan.rows))
    return given + tuple(block for block in plan.poisoned if block not in given) if plan.poisoned else given


def write_rows(
    table: NDArray[np.int64],
    rows: Sequence[Row],
    shape: Shape,
    pad_state_slots: Callable[[Sequence[Row], int], Sequence[int]],
    *,
    before: Sequence[PlanRow] = (),
    prev_positions: Sequence[int] = (),
    backups: Sequence[int] = (),
    accepted: Sequence[int] = (),
    taken_over: Sequence[int] = (),
) -> None:
    """Write the fields (`memory.FIELDS`) of each row into a padded table [fields, rows].

    Two fields belong to the previous step (`before`). `accepted` and `taken_over` may be shorter than `rows`: the rest
    is 0 and PAD_BLOCK.
    """
    table.fill(0)
    table[PREV_POSITION].fill(NO_PREVIOUS_ROW)
    table[TAKEN_OVER].fill(PAD_BLOCK)
    cells = table.data
    for index, row in enumerate(rows):
        plan, scheduled = row.plan, row.plan.scheduled
        cells[COMPUTED_HOST, index] = row.num_computed
        cells[NUM_SCHEDULED, index] = scheduled.n
        cells[NUM_DRAFTS, index] = scheduled.d
        cells[PREV_POSITION, index] = prev_positions[index]
        cells[STATE_SLOT, index] = plan.request.state_slot
        cells[BACKUP, index] = backups[index]
        if plan.discard:
            cells[DISCARD, index] = 1
        if scheduled.spoils.no_valid_token:
            cells[INVALID, index] = 1
    for index, plan in enumerate(before):
        cells[PREV_NUM_SCHEDULED, index] = plan.scheduled.n
        cells[PREV_NUM_DRAFTS, index] = plan.scheduled.d
    for index, start in enumerate(shape.starts):
        cells[QUERY_START, index] = start
    num_pads = max(shape.num_rows, len(before)) - len(rows)
    pads = pad_state_slots(rows, num_pads)
    assert len(pads) == num_pads, f"{len(pads)} state slots for {num_pads} padding rows"
    for index, slot in enumerate(pads, len(rows)):
        cells[STATE_SLOT, index] = slot
    if accepted:
        table[ACCEPTED_HOST, : len(accepted)] = accepted
    if taken_over:
        table[TAKEN_OVER, : len(taken_over)] = taken_over


def write_tokens(ids: NDArray[np.int64], token_row: NDArray[np.int64], rows: Sequence[Row], shape: Shape) -> None:
    """Write the input ids that the host knows, and the row index of each token, with padding."""
    end = shape.starts[len(rows) - 1] + rows[-1].plan.scheduled.n
    ids[:end].fill(UNKNOWN_TOKEN)
    if end < shape.num_tokens:
        ids[end:].fill(0)
        token_row[end:].fill(PAD_ROW)
    for index, (row, start) in enumerate(zip(rows, shape.starts, strict=False)):
        n, first, at = row.plan.scheduled.n, row.num_computed, start
        token_row[start : start + n].fill(index)
        if first < len(row.tokens):
            for position in range(first, min(first + n, len(row.tokens))):
                ids[at] = row.tokens[position]
                at += 1
        for draft in row.plan.drafts:
            ids[at] = draft
            at += 1


def write_block_table(table: NDArray[np.int64], rows: Sequence[Row]) -> None:
    """Write each row's block ids into a table [rows, max_blocks], padded by PAD_BLOCK."""
    table.fill(PAD_BLOCK)
    cells = table.data
    for index, row in enumerate(rows):
        for column, block in enumerate(row.blocks):
            cells[index, column] = block


def staging_slot(step: int, num_slots: int) -> int:
    """Return the index of the pinned buffer that this step uses."""
    return step % num_slots


def wait_for_readers(h2d: Lane, inputs_read: LaneEvent) -> None:
    """Make the next input copy wait for the last reader of the previous inputs."""
    h2d.wait(inputs_read)


def wait_for_output(output_done: LaneEvent) -> None:
    """Block the host until a step's sampled tokens are copied."""
    output_done.synchronize()

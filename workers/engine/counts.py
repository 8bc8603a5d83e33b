"""Token counts on the host: accepted counts, corrected computed counts, backup tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

from workers.engine.request import PlanRow
from workers.lanes.lane import LaneEvent, Machine, Span


@dataclass(frozen=True, slots=True)
class CountsInFlight:
    """Accepted-token counts of the previous step while they are copied to the host."""

    machine: Machine
    landed: LaneEvent
    pinned: Span
    step: int


def gather_counts(
    counts: CountsInFlight | None,
    prev_positions: Sequence[int],
    rows: Sequence[PlanRow],
    moves: Sequence[tuple[int, int]],
) -> Sequence[int]:
    """Return each row's accepted-token count, looked up at the request's previous row.

    `moves` lists (row, previous row) of rows that moved. The pinned buffer is not reordered, because only its copy may
    write to it. A row that was not sampled in the previous step has its last processed count.
    Source: vLLM PR #38556.
    """
    if counts is None:
        return tuple(row.num_accepted for row in rows)
    counts.landed.synchronize()
    with counts.machine.host(counts.pinned, "r", counts.step) as landed:
        values = tuple(landed.data)
    return tuple(
        values[previous] if previous >= 0 else row.num_accepted
        for previous, row in zip(prev_positions, rows, strict=True)
    )


def backup_index(num_tokens_no_spec: int, optimistic_seq_len: int) -> int:
    """Return the index of the token from which a drafter continues if its row samples no token.

    The drafter continues from the backup token if nothing is sampled.
    Source: vLLM PR #38556.
    """
    return num_tokens_no_spec - 1


def true_count(computed_before: int, row: PlanRow, num_valid: int) -> int:
    """Return a row's computed tokens after a step, without its rejected drafts.

    The result is assigned to the host's count; nothing is subtracted.
    """
    if row.discard:
        return computed_before + row.scheduled.n
    return computed_before + row.scheduled.n - 1 - row.scheduled.d + num_valid

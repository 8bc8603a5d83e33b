"""Log entry of a plan."""

from collections.abc import Sequence

from workers.engine.request import Plan
from workers.record.log import Scheduled, ScheduledRow, SkipReason


def entry_of(plan: Plan, tick: int, skipped: Sequence[tuple[int, SkipReason]], block_size: int) -> Scheduled:
    """Return what a step computes and why every other request waits."""
    rows = tuple(
        ScheduledRow(
            row.request.index,
            row.epoch,
            row.step_in_epoch,
            row.n,
            row.d,
            row.new_blocks,
            row.request.state_slot,
            row.padded,
            row.invalid,
            row.spoiled,
            len(row.shared_blocks) * block_size,
            row.shared_blocks,
        )
        for row in plan.rows
    )
    return Scheduled(plan.step, tick, plan.k_step, rows, tuple(skipped))

"""Faults in how the host reads and moves counts that the device owns."""

from collections.abc import Sequence
from dataclasses import replace

from workers.engine.counts import CountsInFlight, gather_counts
from workers.engine.parts import Parts
from workers.engine.request import PlanRow
from workers.faults.fault import Fault, Reached


def _backup_from_optimistic_length(parts: Parts, reached: Reached) -> Parts:
    def backup_index(num_tokens_no_spec: int, optimistic_seq_len: int) -> int:
        # Only a discarded chunk ends before the last known token, and only there is the backup used.
        if optimistic_seq_len < num_tokens_no_spec - 1:
            reached()
        return optimistic_seq_len

    return replace(parts, backup_index=backup_index)


def _counts_moved_in_flight(parts: Parts, reached: Reached) -> Parts:
    def counts_moved_with_rows(
        counts: CountsInFlight | None,
        prev_positions: Sequence[int],
        rows: Sequence[PlanRow],
        moves: Sequence[tuple[int, int]],
    ) -> list[int]:
        if counts is None:
            return gather_counts(counts, prev_positions, rows, moves)
        machine, pinned = counts.machine, counts.pinned.buffer.all
        if moves:
            reached()
            with machine.host(pinned, "r") as view:
                values = view.tolist()
            with machine.host(pinned, "w") as view:
                for row, before in moves:
                    view[row] = values[before]
        counts.landed.synchronize()
        with machine.host(pinned, "r") as view:
            values = view.tolist()
        return [
            values[index] if previous >= 0 else row.num_accepted
            for index, (previous, row) in enumerate(zip(prev_positions, rows, strict=True))
        ]

    return replace(parts, gather_counts=counts_moved_with_rows)


FAULTS = (
    Fault(
        id="vllm-38556-backup-token",
        source="vllm PR #38556, fix 1 (issue #38098)",
        symptom="the drafter of a discarded prefill chunk is fed another token than the last known one",
        trigger="a prefill chunk that is not the last: the index is the optimistic sequence length",
        plane="inputs",
        requires=(),
        apply=_backup_from_optimistic_length,
    ),
    Fault(
        id="vllm-38556-accepted-counts",
        source="vllm PR #38556, fix 2 (issue #38098)",
        symptom="a request advances its recurrent state from another request's accepted count",
        trigger="a row moves by condense or reorder while the accepted counts of the step before are being copied",
        plane="counts",
        requires=(("accepted_counts", "host"), ("layers", "hybrid"), ("depth", 2)),
        apply=_counts_moved_in_flight,
    ),
)

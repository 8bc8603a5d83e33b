"""Faults in the host's use of accepted and computed token counts that the device owns."""

from collections.abc import Sequence

from workers.engine.counts import CountsInFlight, gather_counts
from workers.engine.functions import EngineFunctions
from workers.engine.request import PlanRow, Request
from workers.faults.fault import Reached, fault, in_place_of


@fault(
    id="vllm-38556-backup-token",
    source="vllm PR #38556, fix 1 (issue #38098)",
    symptom="the drafter of a discarded prefill chunk reads another token than the last known one",
    trigger="a prefill chunk that is not the last: the index is the optimistic sequence length",
    plane="inputs",
)
@in_place_of("backup_index")
def _backup_from_optimistic_length(
    functions: EngineFunctions, reached: Reached, num_tokens_no_spec: int, optimistic_seq_len: int
) -> int:
    # Only a discarded chunk ends before the last known token, and only then is the backup token used.
    if optimistic_seq_len < num_tokens_no_spec - 1:
        reached()
    return optimistic_seq_len


@fault(
    id="vllm-38556-accepted-counts",
    source="vllm PR #38556, fix 2 (issue #38098)",
    symptom="a request advances its recurrent state from another request's accepted count",
    trigger="a row moves by condense or reorder while the previous step's accepted counts are being copied",
    plane="counts",
    requires=(("accepted_counts", "host"), ("layers", "hybrid"), ("depth", 2)),
)
@in_place_of("gather_counts")
def _counts_moved_in_flight(
    functions: EngineFunctions,
    reached: Reached,
    counts: CountsInFlight | None,
    prev_positions: Sequence[int],
    rows: Sequence[PlanRow],
    moves: Sequence[tuple[int, int]],
) -> Sequence[int]:
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


@fault(
    id="vllm-42722-empty-row",
    source="vllm PR #42722",
    symptom="a request counts rejected draft tokens as computed, and is never scheduled again",
    trigger="a row that verifies draft tokens samples no valid token",
    plane="counts",
)
@in_place_of("roll_back")
def _empty_row_keeps_its_drafts(
    functions: EngineFunctions, reached: Reached, request: Request, num_drafts: int, num_valid: int
) -> None:
    if num_drafts and not num_valid:
        reached()
    else:
        functions.roll_back(request, num_drafts, num_valid)


@fault(
    id="vllm-45100-first-verification",
    source="vllm PR #45100",
    symptom="a request restores its recurrent state by the accepted count of its row's previous request",
    trigger="a row that was not sampled in the previous step reads another row's accepted count",
    plane="counts",
    requires=(("accepted_counts", "host"), ("layers", "hybrid")),
)
@in_place_of("gather_counts")
def _first_verification_reads_its_row(
    functions: EngineFunctions,
    reached: Reached,
    counts: CountsInFlight | None,
    prev_positions: Sequence[int],
    rows: Sequence[PlanRow],
    moves: Sequence[tuple[int, int]],
) -> list[int]:
    found = [*functions.gather_counts(counts, prev_positions, rows, moves)]
    if counts is None:
        return found
    with counts.machine.host(counts.pinned.buffer.all, "r") as view:
        values = view.tolist()
    for index, (previous, row) in enumerate(zip(prev_positions, rows, strict=True)):
        # A row that has computed nothing does not use the count.
        if previous < 0 and row.num_computed > 0 and values[index] != found[index]:
            reached()
            found[index] = values[index]
    return found


@fault(
    id="openvino-4190-last-draft",
    source="openvino.genai issue #4190",
    symptom="a request's number of processed tokens stays one too high",
    trigger="exactly the last draft token of a row is rejected",
    plane="counts",
)
@in_place_of("true_count")
def _last_draft_rejected_unnoticed(
    functions: EngineFunctions, reached: Reached, computed_before: int, row: PlanRow, num_valid: int
) -> int:
    if not row.discard and row.scheduled.d and num_valid == row.scheduled.d:
        reached()
        return computed_before + row.scheduled.n
    return functions.true_count(computed_before, row, num_valid)

"""Decisions that no engine may take and that the referee lets pass, each reported: changed logs that are accepted."""

from collections.abc import Mapping
from dataclasses import replace

from tests.workers.doctors import Doctor, Place, on, on_row
from workers.log import Aborted, Entry, Launched, Preempted, Scheduled, ScheduledRow, Submitted


def another_slot_while_running(place: Place, entry: Scheduled) -> list[Entry] | None:
    used = {truth.state_slot for truth in place.oracle.running} | {row.state_slot for row in entry.rows}
    free = next((slot for slot in range(place.spec.max_num_seqs) if slot not in used), None)
    if free is None or not entry.rows or not place.oracle.requests[entry.rows[0].request].running:
        return None
    return [replace(entry, rows=(entry.rows[0]._replace(state_slot=free), *entry.rows[1:]))]


def later_newcomer_first(place: Place, entry: Scheduled) -> list[Entry] | None:
    """Admit the last two requests in the other order."""
    last = entry.rows[-2:]
    if len(last) < 2 or any(place.oracle.requests[row.request].running or row.padded for row in last):
        return None
    if last[0].n != last[1].n or max(row.request for row in last) != last[1].request:
        return None
    return [replace(entry, rows=(*entry.rows[:-2], last[1], last[0]))]


def another_layout(place: Place, entry: Launched) -> list[Entry] | None:
    """Say that a ragged batch is uniform where the padded shape does not show it."""
    scheduled = place.log[place.at - 1]
    if place.spec.pad or len(entry.order) < 2 or entry.uniform:
        return None
    return [replace(entry, uniform=True)] if isinstance(scheduled, Scheduled) else None


def admitted_beside_a_preemption(place: Place, entry: Scheduled) -> list[Entry] | None:
    """Admit a new request in a step that took blocks from another."""
    spec = place.spec
    budget = spec.max_num_batched_tokens - sum(row.n for row in entry.rows)
    used = {truth.state_slot for truth in place.oracle.running}
    slots = [slot for slot in range(spec.max_num_seqs) if slot not in used]
    given = {block for row in entry.rows for block in row.new_blocks}
    owned = given | {block for truth in place.oracle.requests for block in truth.blocks}
    free = [block for block in range(spec.num_blocks) if block not in owned]
    for request, reason in entry.skipped:
        truth = place.oracle.requests[request]
        if reason != "preempted" or truth.epoch or truth.running or not slots or not budget:
            continue
        n = min(truth.committed, spec.long_prefill_token_threshold or truth.committed, budget)
        num_blocks = -(-min(n + spec.num_speculative_tokens, spec.max_model_len) // spec.block_size)
        if num_blocks <= len(free):
            row = ScheduledRow(request, 0, 0, n, 0, tuple(free[:num_blocks]), slots[0], False, False)
            skipped = tuple(each for each in entry.skipped if each[0] != request)
            return [replace(entry, rows=(*entry.rows, row), skipped=skipped)]
    return None


UNJUDGED: Mapping[str, Doctor] = {
    "a running request gets another state slot": on(Scheduled, another_slot_while_running),
    "a request is admitted before one that came first": on(Scheduled, later_newcomer_first),
    "a request is admitted in a step that preempts another": on(Scheduled, admitted_beside_a_preemption),
    "a commit key counts one step too many": on_row(0, lambda p, row, t: {"k": row.k + 1}),
    "a ragged batch is called uniform": on(Launched, another_layout),
    "a request is submitted at another tick than its event's": on(
        Submitted, lambda p, e: [replace(e, tick=e.tick + 3)]
    ),
    "a step says another tick": on(Scheduled, lambda p, e: [replace(e, tick=e.tick + 1)] if not e.skipped else None),
}

# An entry about a request that was never submitted: refused, not an IndexError that looks like a crash of the engine.
UNKNOWN: Mapping[str, Doctor] = {
    "aborted": on(Scheduled, lambda p, e: [Aborted(99, e.tick)]),
    "preempted": on(Scheduled, lambda p, e: [Preempted(99, 1, "event", e.tick)]),
    "submitted": on(Submitted, lambda p, e: [replace(e, request=99)]),
}

"""Decision logs with one change that only earlier entries reveal."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from scenarios.events import NoValidToken
from tests.workers.judge.doctors import Doctor, Place, given, is_chunk, on, on_row, sample_is_taken
from tests.workers.judge.refusals import Refusal, refused
from workers.oracle.truth import Truth
from workers.record.log import (
    Aborted,
    CacheReset,
    Entry,
    Freed,
    Launched,
    Preempted,
    Processed,
    RowBlocks,
    Scheduled,
    ScheduledRow,
    SkipReason,
    Submitted,
)
from workers.record.rules import Rule


def another_slot_while_running(place: Place, entry: Scheduled) -> list[Entry] | None:
    used = {truth.state_slot for truth in place.oracle.running} | {row.state_slot for row in entry.rows}
    free = next((slot for slot in range(place.spec.max_num_seqs) if slot not in used), None)
    if free is None or not entry.rows or not place.oracle.requests[entry.rows[0].request].running:
        return None
    return [replace(entry, rows=(replace(entry.rows[0], state_slot=free), *entry.rows[1:]))]


def later_newcomer_first(place: Place, entry: Scheduled) -> list[Entry] | None:
    """Swap the admissions of the last two requests."""
    last = entry.rows[-2:]
    if len(last) < 2 or any(place.oracle.requests[row.request].running or row.padded for row in last):
        return None
    if last[0].n != last[1].n or max(row.request for row in last) != last[1].request:
        return None
    return [replace(entry, rows=(*entry.rows[:-2], last[1], last[0]))]


def another_layout(place: Place, entry: Launched) -> list[Entry] | None:
    """Mark a ragged batch as uniform if both have the same padded shape."""
    scheduled = place.log[place.at - 1]
    if place.spec.pad or len(entry.order) < 2 or entry.uniform:
        return None
    return [replace(entry, uniform=True)] if isinstance(scheduled, Scheduled) else None


def admitted_beside_a_preemption(place: Place, entry: Scheduled) -> list[Entry] | None:
    """Admit a new request in a step that preempted another one for lack of blocks."""
    spec = place.spec
    budget = spec.max_num_batched_tokens - sum(row.n for row in entry.rows)
    used = {truth.state_slot for truth in place.oracle.running}
    slots = [slot for slot in range(spec.max_num_seqs) if slot not in used]
    given = {block for row in entry.rows for block in row.blocks.new}
    owned = given | {block for truth in place.oracle.requests for block in truth.blocks}
    free = [block for block in range(spec.num_blocks) if block not in owned]
    for request, reason in entry.skipped:
        truth = place.oracle.requests[request]
        if reason != "preempted" or truth.epoch or truth.running or not slots or not budget:
            continue
        n = min(truth.committed, spec.long_prefill_token_threshold or truth.committed, budget)
        num_blocks = -(-min(n + spec.num_speculative_tokens, spec.max_model_len) // spec.block_size)
        if num_blocks <= len(free):
            row = ScheduledRow(request, 0, 0, n, 0, slots[0], RowBlocks(tuple(free[:num_blocks])))
            skipped = tuple(each for each in entry.skipped if each[0] != request)
            return [replace(entry, rows=(*entry.rows, row), skipped=skipped)]
    return None


def ignored(place: Place, entry: Aborted | CacheReset | Preempted | Submitted) -> list[Entry] | None:
    """Remove the log entry of an event; judge the next step or results."""
    if isinstance(entry, Preempted) and entry.cause != "event":
        return None
    for after in place.log[place.at + 1 :]:
        if isinstance(after, Scheduled | Processed):
            return [after]
        if not isinstance(after, Freed):
            return None
    return None


def submitted_early(place: Place, entry: Scheduled) -> list[Entry] | None:
    """Submit a request before the hook of its event."""
    for number, event in enumerate(place.trace.submits()):
        if event.tick > entry.tick and place.oracle.newest.get(event.request) is None:
            return [Submitted(len(place.oracle.requests), number, event.tick)]
    return None


def second_sample_taken(place: Place, row: Any, truth: Truth) -> dict[str, Any] | None:
    """Remove a second sample for an event that should remove one."""
    asked = [event for event in place.trace.events if isinstance(event, NoValidToken) and event.request == truth.name]
    rows = (each for entry in place.log[: place.at] if isinstance(entry, Scheduled) for each in entry.rows)
    taken = any(each.spoils.no_valid_token and each.request == row.request for each in rows)
    return sample_is_taken(row, True) if taken and len(asked) == 1 and not is_chunk(row, truth) else None


def scheduled_all_the_same(reason: SkipReason) -> Doctor:
    """Return a change that schedules a request although it must wait for this reason."""

    def doctor(place: Place, entry: Scheduled) -> list[Entry] | None:
        request = next((request for request, why in entry.skipped if why == reason), None)
        if request is None:
            return None
        row = ScheduledRow(request, place.oracle.requests[request].epoch, 0, 1, 0, 0)
        skipped = tuple(each for each in entry.skipped if each[0] != request)
        return [replace(entry, rows=(*entry.rows, row), skipped=skipped)]

    return on(Scheduled, doctor)


def by_blocks(change: Callable[[Preempted], list[Entry]]) -> Doctor:
    """Return a change of preemptions for lack of blocks."""
    return on(Preempted, lambda p, e: change(e) if e.cause == "blocks" else None)


def with_its_step(change: Callable[[Preempted], Preempted]) -> Doctor:
    """Return a change of a preemption for lack of blocks, including the step after it."""

    def doctor(place: Place, entry: Preempted) -> list[Entry] | None:
        if entry.cause != "blocks" or place.oracle.cache is not None:
            return None
        step = next(at for at in range(place.at, len(place.log)) if isinstance(place.log[at], Scheduled))
        return [change(entry), *place.log[place.at + 1 : step + 1]]

    return on(Preempted, doctor)


def about(request: int) -> dict[str, tuple[Refusal, Doctor]]:
    """Return changes that put an unknown request into each kind of log entry."""
    doctors: dict[str, tuple[Refusal, Doctor]] = {
        "aborted": (refused(Rule.NEVER_SUBMITTED), on(Scheduled, lambda p, e: [Aborted(request, e.tick)])),
        "preempted": (
            refused(Rule.NEVER_SUBMITTED),
            on(Scheduled, lambda p, e: [Preempted(request, 1, "event", e.tick)]),
        ),
        "freed": (refused(Rule.NEVER_SUBMITTED), on(Freed, lambda p, e: [replace(e, request=request)])),
        "submitted": (refused(Rule.SUBMITTED_OUT_OF_ORDER), on(Submitted, lambda p, e: [replace(e, request=request)])),
        "scheduled": (refused(Rule.NAMED_REQUESTS), on_row(-1, lambda p, row, t: {"request": request})),
        "left out": (
            refused(Rule.NAMED_REQUESTS),
            on(Scheduled, lambda p, e: [replace(e, skipped=(*e.skipped, (request, "budget")))]),
        ),
        "launched": (refused(Rule.ROW_ORDER), on(Launched, lambda p, e: [replace(e, order=(*e.order, request))])),
    }
    return {f"unknown request {request} is {what}": doctor for what, doctor in doctors.items()}


REFUSED_BY_HISTORY: Mapping[str, tuple[Refusal, Doctor]] = {
    "a running request gets another state slot": (
        refused(Rule.SLOT_CHANGED),
        on(Scheduled, another_slot_while_running),
    ),
    "a request is admitted before one that came first": (
        refused(Rule.ROWS),
        on(Scheduled, later_newcomer_first),
    ),
    "a request is admitted in a step that preempts another": (
        refused(Rule.SCHEDULED, due="preempted"),
        on(Scheduled, admitted_beside_a_preemption),
    ),
    **{
        f"scheduled, but {reason}": (refused(Rule.SCHEDULED, due=reason), scheduled_all_the_same(reason))
        for reason in ("stalled", "limit", "budget", "blocks", "rows", "stale", "preempted")
    },
    "left out for another reason": (
        refused(Rule.SKIPPED, reason="rows", due="stalled"),
        on(
            Scheduled,
            lambda p, e: (
                [replace(e, skipped=((e.skipped[0][0], "rows"), *e.skipped[1:]))]
                if e.skipped[:1] and e.skipped[0][1] == "stalled"
                else None
            ),
        ),
    ),
    "a commit key counts one step too many": (
        refused(Rule.STEP_IN_EPOCH),
        on_row(0, lambda p, row, t: {"step_in_epoch": row.step_in_epoch + 1}),
    ),
    "a ragged batch is called uniform": (refused(Rule.UNIFORM), on(Launched, another_layout)),
    "rows in another order": (
        refused(Rule.ROW_ORDER),
        on(Launched, lambda p, e: [replace(e, order=e.order[::-1])] if len(e.order) > 1 else None),
    ),
    "a request is submitted at another tick than its event's": (
        refused(Rule.SUBMITTED_AT),
        on(Submitted, lambda p, e: [replace(e, tick=e.tick + 3)]),
    ),
    "a request is submitted before its event": (
        refused(Rule.SUBMITTED_EARLY),
        on(Scheduled, submitted_early),
    ),
    "a step says another tick": (
        refused(Rule.STEP_NUMBER),
        on(Scheduled, lambda p, e: [replace(e, tick=e.tick + 1)]),
    ),
    "a step says another number": (
        refused(Rule.STEP_NUMBER),
        on(Scheduled, lambda p, e: [replace(e, step=e.step + 1)]),
    ),
    "a submit is ignored": (refused(Rule.SUBMIT_MISSING), on(Submitted, ignored)),
    "an abort is ignored": (refused(Rule.ABORT_MISSING), on(Aborted, ignored)),
    "a preemption is ignored": (refused(Rule.PREEMPT_MISSING), on(Preempted, ignored)),
    "a preemption for blocks at another tick": (
        refused(Rule.VICTIM_TICK),
        by_blocks(lambda e: [replace(e, tick=e.tick + 1)]),
    ),
    "a preemption by an event in the other mode": (
        refused(Rule.PREEMPT_UNASKED),
        on(
            Preempted,
            lambda p, e: [replace(e, mode="deliver" if e.mode == "drop" else "drop")] if e.cause == "event" else None,
        ),
    ),
    "a preemption for blocks that drops results": (
        refused(Rule.VICTIM_MODE, mode="drop"),
        by_blocks(lambda e: [replace(e, mode="drop")]),
    ),
    "a block taken over too many": (
        refused(Rule.HITS),
        on_row(
            -1,
            lambda p, row, t: (
                given(row, shared=(*row.blocks.shared, row.blocks.new[0]), hit_length=row.blocks.hit_length + 1)
                if row.blocks.shared and row.blocks.new
                else None
            ),
        ),
    ),
    "a block taken over too few": (
        refused(Rule.HITS),
        on_row(-1, lambda p, row, t: given(row, shared=row.blocks.shared[:-1]) if row.blocks.shared else None),
    ),
    "another block than the next one": (
        refused(Rule.BLOCKS),
        on_row(
            0,
            lambda p, row, t: (
                given(row, new=row.blocks.new[::-1]) if p.oracle.cache is not None and row.blocks.new[1:] else None
            ),
        ),
    ),
    "a reset without an event": (
        refused(Rule.RESET_UNASKED),
        on(
            Scheduled,
            lambda p, e: [CacheReset(e.tick)] if not any(event.do[:5] == "reset" for event in p.trace.events) else None,
        ),
    ),
    "a reset is ignored": (refused(Rule.RESET_MISSING), on(CacheReset, ignored)),
    "a reset before those that run are preempted": (
        refused(Rule.RESET_UNASKED),
        on(Preempted, lambda p, e: [CacheReset(e.tick)] if e.cause == "reset" else None),
    ),
    "a reset that preempts in deliver mode": (
        refused(Rule.PREEMPT_UNASKED),
        on(Preempted, lambda p, e: [replace(e, mode="deliver")] if e.cause == "reset" else None),
    ),
    "blocks of this step given back by a victim that got none": (
        refused(Rule.RETURNED_BLOCKS),
        with_its_step(lambda e: replace(e, returned=(*e.returned, 0))),
    ),
    "results between preemptions and their step": (
        refused(Rule.BEFORE_SCHEDULE),
        by_blocks(lambda e: [e, Processed(0)]),
    ),
    "a sample is not taken away": (
        refused(Rule.SAMPLE_LEFT),
        on_row(
            0,
            lambda p, row, t: sample_is_taken(row, False) if row.spoils.no_valid_token else None,
        ),
    ),
    "one event takes two samples": (refused(Rule.SAMPLE_TAKEN), on_row(0, second_sample_taken)),
    "processed too early": (
        refused(Rule.PROCESSED_EARLY, count=1, depth=2),
        on(Processed, lambda p, e: [e, Processed(e.step + 1)] if p.spec.depth > 1 else None),
    ),
    "a block past the pool freed": (
        refused(Rule.BLOCK_FREED, Rule.OTHER_BLOCKS_FREED, owner=None),
        on(Freed, lambda p, e: [replace(e, blocks=(*e.blocks, p.spec.num_blocks))]),
    ),
    "a negative state slot freed": (
        refused(Rule.SLOT_FREED, slot=-1),
        on(Freed, lambda p, e: [replace(e, state_slot=-1)]),
    ),
    **about(-1),
    **about(99),
}

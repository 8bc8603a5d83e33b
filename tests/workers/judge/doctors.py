"""Decision logs of correct runs with one changed decision, and the rule that it breaks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from scenarios.events import Abort, NoValidToken, Preempt
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from tests.workers.judge.refusals import Refusal, refused
from workers.oracle.state_oracle import Oracle
from workers.oracle.truth import Truth
from workers.record.log import (
    Aborted,
    Corrected,
    Entry,
    Freed,
    Launched,
    Preempted,
    Processed,
    Scheduled,
    ScheduledRow,
    SkipReason,
    Submitted,
)
from workers.record.rules import Rule


@dataclass(frozen=True, slots=True)
class Place:
    """A position in the log of a correct run; the entries before `at` have been judged."""

    trace: Trace
    oracle: Oracle
    log: list[Entry]
    at: int

    @property
    def entry(self) -> Entry:
        """The next log entry."""
        return self.log[self.at]

    @property
    def spec(self) -> EngineSpec:
        """The engine's sizes."""
        return self.trace.spec

    @property
    def num_free(self) -> int:
        """Free blocks."""
        return self.spec.num_blocks - sum(len(truth.blocks) for truth in self.oracle.requests)

    def free_block(self) -> int | None:
        """Return a free block."""
        assert isinstance(self.entry, Scheduled)
        owned = {block for truth in self.oracle.requests for block in truth.blocks}
        owned |= {block for row in self.entry.rows for block in row.blocks.new}
        return next((block for block in range(self.spec.num_blocks) if block not in owned), None)

    def asks(self, kind: type, truth: Truth, tick: int) -> bool:
        """Return whether an event of this kind applies to a request in a tick."""
        events = (event for event in self.trace.events if isinstance(event, kind))
        return any(getattr(event, "request", "") == truth.name and event.tick == tick for event in events)


# Return the entries to judge instead of the entry at a place (the last one must be refused), None if not possible.
Doctor: TypeAlias = Callable[[Place], list[Entry] | None]


def given(row: ScheduledRow, **blocks: Any) -> dict[str, Any]:
    """Return a change of the blocks of a batch row."""
    return {"blocks": replace(row.blocks, **blocks)}


def sample_is_taken(row: ScheduledRow, is_taken: bool) -> dict[str, Any]:
    """Return a change of whether a row's sample is removed."""
    return {"spoils": row.spoils._replace(no_valid_token=is_taken)}


def on_row(index: int, change: Callable[[Place, Any, Truth], dict[str, Any] | None]) -> Doctor:
    """Return a change of the first (0) or last (-1) row of a step."""

    def doctor(place: Place) -> list[Entry] | None:
        entry = place.entry
        if not isinstance(entry, Scheduled) or not entry.rows:
            return None
        row = entry.rows[index]
        changes = change(place, row, place.oracle.requests[row.request])
        if changes is None:
            return None
        rows = list(entry.rows)
        rows[index] = replace(row, **changes)
        return [replace(entry, rows=tuple(rows))]

    return doctor


def on(kind: type, change: Callable[[Place, Any], list[Entry] | None]) -> Doctor:
    """Return a change of log entries of one kind."""
    return lambda place: change(place, place.entry) if isinstance(place.entry, kind) else None


def is_chunk(row: Any, truth: Truth) -> bool:
    """Return whether a row is a prefill chunk that is not the last."""
    return bool(truth.sched_computed + row.n < truth.committed + truth.sched_placeholders)


def past_the_budget(place: Place, entry: Scheduled) -> list[Entry] | None:
    if not entry.rows or sum(row.n for row in entry.rows) < place.spec.max_num_batched_tokens:
        return None
    last = entry.rows[-1]
    return [replace(entry, rows=(*entry.rows[:-1], replace(last, n=last.n + 1)))]


def swapped_rows(place: Place, entry: Scheduled) -> list[Entry] | None:
    rows = entry.rows
    if len(rows) < 2 or not all(place.oracle.requests[row.request].running for row in rows[:2]):
        return None
    return [replace(entry, rows=(rows[1], rows[0], *rows[2:]))]


def newcomer_first(place: Place, entry: Scheduled) -> list[Entry] | None:
    rows = entry.rows
    if len(rows) < 2 or place.oracle.requests[rows[-1].request].running or not place.oracle.running:
        return None
    if not place.oracle.requests[rows[0].request].running:
        return None
    return [replace(entry, rows=(rows[-1], *rows[:-1]))]


def left_out(reason: SkipReason, is_running: bool) -> Doctor:
    """Return a change that skips the last row's request for a wrong reason."""

    def doctor(place: Place) -> list[Entry] | None:
        entry = place.entry
        if not isinstance(entry, Scheduled) or not entry.rows or isinstance(place.log[place.at - 2], Preempted):
            return None
        row = entry.rows[-1]
        truth = place.oracle.requests[row.request]
        room = place.spec.max_num_batched_tokens - sum(row.n for row in entry.rows[:-1])
        if truth.running != is_running or (not is_running and room < 1 + place.spec.num_speculative_tokens):
            return None
        if reason == "blocks" and place.num_free < place.spec.num_blocks // 2:
            return None
        return [replace(entry, rows=entry.rows[:-1], skipped=((row.request, reason), *entry.skipped))]

    return doctor


def taken_block(place: Place, row: Any, truth: Truth) -> dict[str, Any] | None:
    taken = next((other.blocks[0] for other in place.oracle.requests if other.blocks and other is not truth), None)
    return None if taken is None or not row.blocks.new else given(row, new=(*row.blocks.new[:-1], taken))


def taken_slot(place: Place, row: Any, truth: Truth) -> dict[str, Any] | None:
    taken = next((other.state_slot for other in place.oracle.running if other is not truth), None)
    return None if taken is None else {"state_slot": taken}


def one_block_more(place: Place, row: Any, truth: Truth) -> dict[str, Any] | None:
    block = place.free_block()
    return None if block is None else given(row, new=(*row.blocks.new, block))


def preempted_for_nothing(place: Place, entry: Scheduled) -> list[Entry] | None:
    """Preempt the last admitted request although blocks are free, and skip it in the step."""
    if not entry.rows or not place.oracle.running or place.num_free < place.spec.num_blocks // 2:
        return None
    victim, row = place.oracle.running[-1], entry.rows[-1]
    if row.request != victim.index or any(reason == "preempted" for _, reason in entry.skipped):
        return None
    # By priority, a different request may be the least urgent.
    urgency = max((truth.priority, truth.index) for truth in place.oracle.running)
    if place.spec.policy == "priority" and urgency != (victim.priority, victim.index):
        return None
    skipped: tuple[tuple[int, SkipReason], ...] = ((row.request, "preempted"), *entry.skipped)
    return [
        Preempted(victim.index, victim.epoch + 1, "blocks", entry.tick),
        Freed(victim.index, tuple(victim.blocks), victim.state_slot),
        replace(entry, rows=entry.rows[:-1], skipped=skipped),
    ]


def victim_admitted_first(place: Place, entry: Scheduled) -> list[Entry] | None:
    # By priority, the first admitted request may be the least urgent.
    least_urgent = max(((truth.priority, truth.index) for truth in place.oracle.running), default=None)
    others = [each for each in place.oracle.running[:-1] if (each.priority, each.index) != least_urgent]
    return [Preempted(others[0].index, others[0].epoch + 1, "blocks", entry.tick)] if others else None


def unasked(place: Place, entry: Scheduled, kind: type) -> list[Entry] | None:
    for truth in place.oracle.running:
        if not place.asks(kind, truth, entry.tick):
            if kind is Abort:
                return [Aborted(truth.index, entry.tick)]
            return [Preempted(truth.index, truth.epoch + 1, "event", entry.tick)]
    return None


def one_too_many_in_flight(place: Place, entry: Processed) -> list[Entry] | None:
    """Leave an empty step unprocessed, so that the next launch exceeds the steps in flight."""
    if place.oracle.steps[entry.step].rows:
        return None
    for after in range(place.at + 1, len(place.log)):
        if isinstance(place.log[after], Launched):
            return place.log[place.at + 1 : after + 1]
        if isinstance(place.log[after], Aborted | Processed):
            return None
    return None


def never_corrected(place: Place, entry: Corrected) -> list[Entry] | None:
    for after in range(place.at + 1, len(place.log)):
        if isinstance(place.log[after], Launched):
            return place.log[place.at + 1 : after + 1]
    return None


def freed_by_another(place: Place, entry: Freed) -> list[Entry] | None:
    others = [truth for truth in place.oracle.running if truth.index != entry.request and truth.blocks]
    return [replace(entry, blocks=(*entry.blocks, others[0].blocks[0]))] if others else None


def freed_slot_of_another(place: Place, entry: Freed) -> list[Entry] | None:
    others = [truth for truth in place.oracle.running if truth.index != entry.request]
    return [replace(entry, state_slot=others[0].state_slot)] if others else None


def freed_while_running(place: Place, entry: Scheduled) -> list[Entry] | None:
    running = [truth for truth in place.oracle.running if truth.blocks]
    return [Freed(running[0].index, tuple(running[0].blocks), running[0].state_slot)] if running else None


def submitted_before_another(place: Place, entry: Submitted) -> list[Entry] | None:
    more = len([event for event in place.trace.events if event.do == "submit"]) - len(place.oracle.requests)
    return [replace(entry, request=entry.request + 1)] if more > 1 else None


def sample_taken(place: Place, row: Any, truth: Truth) -> dict[str, Any] | None:
    events = (event for event in place.trace.events if isinstance(event, NoValidToken))
    asked = any(event.request == truth.name for event in events)
    return None if asked or is_chunk(row, truth) else sample_is_taken(row, True)


REFUSED: Mapping[str, tuple[Refusal, Doctor]] = {
    "past the budget": (refused(Rule.NUM_TOKENS), on(Scheduled, past_the_budget)),
    "one token too many": (refused(Rule.NUM_TOKENS), on_row(0, lambda p, row, t: {"n": row.n + 1})),
    "one token too few": (refused(Rule.NUM_TOKENS), on_row(-1, lambda p, row, t: {"n": row.n - 1})),
    "one draft too many": (refused(Rule.NUM_DRAFTS), on_row(-1, lambda p, row, t: {"d": row.d + 1})),
    "one draft too few": (refused(Rule.NUM_DRAFTS), on_row(0, lambda p, row, t: {"d": row.d - 1} if row.d else None)),
    "a chunk with drafts": (
        refused(Rule.NUM_DRAFTS, count=1),
        on_row(-1, lambda p, row, t: {"d": 1} if is_chunk(row, t) else None),
    ),
    "another epoch": (refused(Rule.EPOCH), on_row(0, lambda p, row, t: {"epoch": row.epoch + 1})),
    "padded while it runs": (
        refused(Rule.PADDED),
        on_row(0, lambda p, row, t: {"padded": True} if t.running else None),
    ),
    "padded and not said so": (
        refused(Rule.NOT_PADDED),
        on_row(-1, lambda p, row, t: {"padded": False} if row.padded else None),
    ),
    "more drafts to propose": (
        refused(Rule.DRAFTS_PROPOSED),
        on(Scheduled, lambda p, e: [replace(e, k_step=e.k_step + 1)]),
    ),
    "rows swapped": (refused(Rule.ROWS), on(Scheduled, swapped_rows)),
    "a newcomer before those that run": (refused(Rule.ROWS), on(Scheduled, newcomer_first)),
    "scheduled and left out": (
        refused(Rule.NAMED_REQUESTS),
        on(Scheduled, lambda p, e: [replace(e, skipped=((e.rows[0].request, "budget"),))] if e.rows else None),
    ),
    "scheduled twice": (
        refused(Rule.NAMED_REQUESTS),
        on(Scheduled, lambda p, e: [replace(e, rows=(*e.rows, e.rows[0]))] if e.rows else None),
    ),
    "forgotten": (
        refused(Rule.NAMED_REQUESTS),
        on(Scheduled, lambda p, e: [replace(e, rows=e.rows[:-1])] if e.rows else None),
    ),
    "left out without being there": (
        refused(Rule.NAMED_REQUESTS),
        on(Scheduled, lambda p, e: [replace(e, skipped=(*e.skipped, (99, "budget")))]),
    ),
    "a block of another request": (refused(Rule.BLOCK_OWNED, Rule.BLOCKS), on_row(-1, taken_block)),
    "a block twice": (
        refused(Rule.BLOCK_OWNED, Rule.BLOCKS),
        on_row(
            -1,
            lambda p, row, t: given(row, new=row.blocks.new[:1] * len(row.blocks.new)) if row.blocks.new[1:] else None,
        ),
    ),
    "a block past the pool": (
        refused(Rule.BLOCK_OWNED, Rule.BLOCKS, owner=None),
        on_row(
            0, lambda p, row, t: given(row, new=(*row.blocks.new[1:], p.spec.num_blocks)) if row.blocks.new else None
        ),
    ),
    "a negative block": (
        refused(Rule.BLOCK_OWNED, Rule.BLOCKS, block=-1, owner=None),
        on_row(0, lambda p, row, t: given(row, new=(*row.blocks.new[1:], -1)) if row.blocks.new else None),
    ),
    "one block too few": (
        refused(Rule.NUM_BLOCKS),
        on_row(-1, lambda p, row, t: given(row, new=row.blocks.new[1:]) if row.blocks.new else None),
    ),
    "one block too many": (refused(Rule.NUM_BLOCKS), on_row(-1, one_block_more)),
    "the state slot of another request": (refused(Rule.SLOT_OWNED, Rule.SLOT_CHANGED), on_row(-1, taken_slot)),
    "a state slot past the last": (
        refused(Rule.SLOT_OWNED),
        on_row(0, lambda p, row, t: {"state_slot": p.spec.max_num_seqs}),
    ),
    "a negative state slot": (refused(Rule.SLOT_OWNED, slot=-1), on_row(0, lambda p, row, t: {"state_slot": -1})),
    "a sample taken away": (refused(Rule.SAMPLE_TAKEN), on_row(-1, sample_taken)),
    "preempted for nothing": (
        refused(Rule.VICTIMS, due=()),
        on(Scheduled, preempted_for_nothing),
    ),
    "another victim": (
        refused(Rule.VICTIM),
        on(Scheduled, victim_admitted_first),
    ),
    "preempted without an event": (refused(Rule.PREEMPT_UNASKED), on(Scheduled, lambda p, e: unasked(p, e, Preempt))),
    "preempted into another epoch": (
        refused(Rule.PREEMPTED_WHILE_WAITING),
        on(Preempted, lambda p, e: [replace(e, epoch=e.epoch + 1)]),
    ),
    "aborted without an event": (refused(Rule.ABORT_UNASKED), on(Scheduled, lambda p, e: unasked(p, e, Abort))),
    "aborted twice": (refused(Rule.ABORT_UNASKED), on(Aborted, lambda p, e: [e, e])),
    "launched out of order": (refused(Rule.LAUNCH_ORDER), on(Launched, lambda p, e: [replace(e, step=e.step + 1)])),
    "launched twice": (refused(Rule.LAUNCH_ORDER), on(Launched, lambda p, e: [e, e])),
    "launched but not scheduled": (
        refused(Rule.NOT_THE_LAST_SCHEDULED),
        on(Scheduled, lambda p, e: [p.log[p.at + 1]]),
    ),
    "launched without a row": (
        refused(Rule.ROW_ORDER),
        on(Launched, lambda p, e: [replace(e, order=e.order[1:])] if e.order else None),
    ),
    "one row of padding too many": (
        refused(Rule.SHAPE),
        on(Launched, lambda p, e: [replace(e, num_rows=e.num_rows + 1)]),
    ),
    "one token of padding too many": (
        refused(Rule.SHAPE),
        on(Launched, lambda p, e: [replace(e, num_tokens=e.num_tokens + 1)]),
    ),
    "a dummy step that no event asks for": (
        refused(Rule.SHAPE, rows=1),
        on(Launched, lambda p, e: None if e.num_rows else [replace(e, num_rows=1, num_tokens=p.spec.token_multiple)]),
    ),
    "a dummy step that does not run": (
        refused(Rule.SHAPE, rows=0, tokens=0, due_rows=1),
        on(Launched, lambda p, e: [replace(e, num_rows=0, num_tokens=0)] if e.num_rows and not e.order else None),
    ),
    "too many in flight": (refused(Rule.TOO_MANY_IN_FLIGHT), on(Processed, one_too_many_in_flight)),
    "processed out of order": (refused(Rule.PROCESS_ORDER), on(Processed, lambda p, e: [Processed(e.step + 1)])),
    "processed twice": (refused(Rule.PROCESS_ORDER), on(Processed, lambda p, e: [e, e])),
    "processed before it was launched": (
        refused(Rule.BEFORE_LAUNCH),
        on(Launched, lambda p, e: [Processed(e.step)]),
    ),
    "corrected out of turn": (
        refused(Rule.CORRECTED_OUT_OF_TURN),
        on(Corrected, lambda p, e: [Corrected(e.step + 1)]),
    ),
    "corrected before the next launch": (
        refused(Rule.CORRECTED_OUT_OF_TURN, step=0),
        on(Launched, lambda p, e: [e, Corrected(0)] if e.step == 0 else None),
    ),
    "corrected twice": (refused(Rule.CORRECTED_OUT_OF_TURN), on(Corrected, lambda p, e: [e, e])),
    "never corrected": (
        refused(Rule.LAUNCHED_UNCORRECTED),
        on(Corrected, never_corrected),
    ),
    "freed by another": (
        refused(Rule.BLOCK_FREED, Rule.OTHER_BLOCKS_FREED),
        on(Freed, freed_by_another),
    ),
    "freed twice": (
        refused(Rule.BLOCK_FREED, Rule.SLOT_FREED),
        on(Freed, lambda p, e: [e, e] if e.blocks else None),
    ),
    "the state slot of another freed": (refused(Rule.SLOT_FREED), on(Freed, freed_slot_of_another)),
    "not all blocks freed": (
        refused(Rule.OTHER_BLOCKS_FREED),
        on(Freed, lambda p, e: [replace(e, blocks=e.blocks[1:])] if e.blocks else None),
    ),
    "freed while it runs": (refused(Rule.FREED_WHILE_RUNNING), on(Scheduled, freed_while_running)),
    "submitted before another": (refused(Rule.SUBMITTED_OUT_OF_ORDER), on(Submitted, submitted_before_another)),
    **{
        f"left out for {reason} while it runs": (refused(Rule.SKIPPED, reason=reason), left_out(reason, True))
        for reason in ("stalled", "limit", "model_length", "budget", "blocks", "rows", "stale", "preempted")
    },
    **{
        f"left out for {reason} at the door": (refused(Rule.SKIPPED, reason=reason), left_out(reason, False))
        for reason in ("stalled", "limit", "model_length", "budget", "blocks", "rows", "stale", "preempted")
    },
}

"""Check that the scheduler decisions in a log were allowed; the oracle only follows them.

Verifies:
- every event is applied at its hook of the step, and nothing happens without an event (`event_obligations`);
- every step is as `reference_scheduler` decides it: scheduled requests in order, their tokens, draft tokens and blocks,
  the reasons of skipped requests, and preempted requests;
- the owners of KV-cache blocks and state slots;
- the row order and the padded shape of batches;
- the order of launches, corrections and results;
- with a prefix cache, which blocks are shared and which are allocated.

Does not verify:
- values (`checker` does);
- which state slot is allocated and, without a prefix cache, which free block.
"""

from collections import deque

from scenarios.trace import Trace
from workers.judge.event_obligations import EventObligations
from workers.judge.reference_scheduler import Decision, RequestState, RowOrder, Share, victim_of
from workers.oracle.prefix_cache import CachedBlocks
from workers.oracle.state_oracle import Oracle
from workers.oracle.truth import Truth
from workers.record.evidence import Violation, violation
from workers.record.log import (
    NO_BLOCKS,
    UNSPOILED,
    Aborted,
    CacheReset,
    Corrected,
    Entry,
    Freed,
    Launched,
    Preempted,
    Processed,
    Scheduled,
    ScheduledRow,
    Spoils,
    Submitted,
)
from workers.record.rules import Rule
from workers.record.verdict import Waiting

# A tick no trace reaches: events are bounded by 1,000,000.
_AFTER_EVERY_EVENT = 1 << 30


class Referee:
    """Judge of scheduler decisions; checks each log entry before the oracle uses it."""

    def __init__(self, trace: Trace, oracle: Oracle) -> None:
        spec = self._spec = trace.spec
        self._by_priority = spec.policy == "priority"
        self._oracle = oracle
        self._obligations = EventObligations(trace, oracle)
        self._row_order = RowOrder(trace.seed)
        self._has_grammars = any(submit.params.grammar for submit in trace.submits())
        self._owner: list[int | None] = [None] * spec.num_blocks
        self._slot_owner: list[int | None] = [None] * spec.max_num_seqs
        self._queue: deque[int] = deque()
        self._drafts_next: dict[int, int] = {}
        self._num_steps: dict[int, int] = {}
        self._victims: list[int] = []
        self._returned: list[tuple[int, ...]] = []
        # The running requests before the first preemption of a step.
        self._running_before: list[RequestState] = []
        # The prefix cache before the first preemption of a step.
        self._cache_before: CachedBlocks | None = None
        self._scheduled: Scheduled | None = None
        self._launched = -1
        self._unprocessed: deque[Scheduled] = deque()
        self._uncorrected: deque[int] = deque()

    def judge(self, entry: Entry) -> Violation | None:
        """Return the scheduling rule that a log entry breaks, or None."""
        wrong = self._out_of_place(entry)
        if wrong is not None:
            return wrong
        match entry:
            case Scheduled():
                return self._schedule(entry)
            case Launched():
                return self._launch(entry)
            case Processed(step=step):
                return self._process(step)
            case Corrected(step=step):
                return self._correct(step)
            case CacheReset():
                return self._obligations.check_entry(entry)
            case Submitted(request=request):
                self._queue.append(request)
                return self._obligations.check_entry(entry)
            case Preempted(request=request) | Aborted(request=request) | Freed(request=request):
                if not 0 <= request < len(self._oracle.requests):
                    return violation(Rule.NEVER_SUBMITTED, request=request)
                if isinstance(entry, Preempted):
                    return self._preempt(entry, self._oracle.requests[request])
                return self._obligations.check_entry(entry) if isinstance(entry, Aborted) else self._free(entry)

    def at_end(self) -> Violation | None:
        """Return a violation if an event, a correction or a live request is left, or None."""
        wrong = self._obligations.advance_to(_AFTER_EVERY_EVENT, "before_process")
        if wrong is not None:
            return wrong
        if len(self._uncorrected) > 1:
            return violation(Rule.NEVER_CORRECTED, step=self._uncorrected[0])
        alive = [truth.name for truth in self._oracle.alive.values()]
        return violation(Rule.STOPPED_EARLY, names=alive) if alive else None

    def waiting(self) -> tuple[Waiting, ...]:
        """Return (request, reason) for each request that the last step skipped."""
        skipped = self._scheduled.skipped if self._scheduled is not None else ()
        requests = self._oracle.requests
        return tuple(Waiting(request=requests[request].name, reason=reason) for request, reason in skipped)

    def _out_of_place(self, entry: Entry) -> Violation | None:
        """Return a violation if an entry comes between a step's decision and its launch."""
        scheduled = self._scheduled
        if scheduled is not None and scheduled.step > self._launched and not isinstance(entry, Launched):
            return violation(Rule.BEFORE_LAUNCH, step=scheduled.step)
        if not self._victims or isinstance(entry, Scheduled | Freed):
            return None
        if isinstance(entry, Preempted) and entry.cause == "blocks":
            return None
        return violation(Rule.BEFORE_SCHEDULE, step=self._launched + 1)

    def _next_tick(self) -> int:
        return 0 if self._scheduled is None else self._scheduled.tick + 1

    def _schedule(self, entry: Scheduled) -> Violation | None:
        oracle = self._oracle
        if not entry.tick == entry.step == self._next_tick():
            return violation(Rule.STEP_NUMBER, step=entry.step, tick=entry.tick, due=self._next_tick())
        self._scheduled = entry
        wrong = self._obligations.advance_to(entry.tick, "before_schedule")
        if wrong is not None:
            return wrong
        if entry.k_step != self._obligations.k_step:
            return violation(Rule.DRAFTS_PROPOSED, count=entry.k_step, due=self._obligations.k_step)
        rows = [row.request for row in entry.rows]
        named = sorted(rows + [request for request, _ in entry.skipped])
        alive = [*oracle.alive]
        if named != alive:
            return violation(Rule.NAMED_REQUESTS, requests=named, due=alive)
        decision = self._decide(entry)
        wrong = self._compare(entry, rows, decision)
        if wrong is not None:
            return wrong
        for row in entry.rows:
            truth, share = oracle.requests[row.request], decision.shares[row.request]
            wrong = self._row(row, truth, share) or self._memory(row, truth, share)
            if wrong is not None:
                return wrong.model_copy(update={"request": truth.name})
            self._drafts_next[row.request] = 0 if share.is_chunk else entry.k_step
            self._num_steps[row.request] = row.step_in_epoch + 1
        if self._queue:
            self._queue = deque([request for request in self._queue if request not in decision.shares])
        self._victims, self._returned, self._cache_before = [], [], None
        self._unprocessed.append(entry)
        return None

    def _decide(self, entry: Scheduled) -> Decision:
        """Recompute a step's decision independently of the rows that the engine chose."""
        requests = self._oracle.requests
        stale: set[int] = set()
        if self._queue:
            self._queue = deque([request for request in self._queue if requests[request].finish_reason is None])
            # A waiting request of epoch 0 has no step in flight.
            if [request for request in self._queue if requests[request].epoch]:
                in_flight = (row for scheduled in self._unprocessed for row in scheduled.rows)
                stale = {
                    row.request
                    for row in in_flight
                    if requests[row.request].drop_before <= row.epoch < requests[row.request].epoch
                }
        cache = self._cache_before or (self._oracle.cache.copy() if self._oracle.cache is not None else None)
        grammars = (
            {truth.index for truth in self._oracle.alive.values() if truth.grammar} if self._has_grammars else set()
        )
        decision = Decision(self._spec, entry.k_step, self._obligations.stalled(entry.tick), stale, grammars, cache)
        decision.schedule_running(
            self._running_before if self._victims else [self._state_of(truth) for truth in self._oracle.running]
        )
        if self._by_priority:
            self._queue = deque(sorted(self._queue, key=lambda request: (requests[request].priority, request)))
        decision.admit(self._queue, lambda request: self._state_of(requests[request]))
        return decision

    def _state_of(self, truth: Truth) -> RequestState:
        state = RequestState(
            truth.index,
            truth.committed,
            truth.sched_computed,
            truth.sched_placeholders,
            self._drafts_next.get(truth.index, 0),
            len(truth.blocks),
            truth.limit,
        )
        if self._by_priority:
            state.priority = truth.priority
        if self._oracle.cache is not None:
            state.blocks = tuple(truth.blocks)
            state.prefixes = tuple(truth.prefixes_until(truth.committed - 1, self._oracle.prefixes))
            state.num_cached = truth.num_cached
        return state

    def _compare(self, entry: Scheduled, rows: list[int], decision: Decision) -> Violation | None:
        """Compare scheduled (`rows`), skipped and preempted requests with the reference decision."""
        requests = self._oracle.requests
        victims = self._victims
        if victims != decision.victims:
            return violation(Rule.VICTIMS, requests=victims, due=decision.victims)
        for victim, blocks, share in zip(victims, self._returned, decision.returned, strict=True):
            count = share.num_blocks if share is not None else 0
            if len(blocks) != count or (
                share is not None and self._oracle.cache is not None and blocks != share.blocks
            ):
                return violation(Rule.RETURNED_BLOCKS, name=requests[victim].name, blocks=blocks, due=count)
        for request, reason in entry.skipped:
            due = decision.waits.get(request)
            if reason != due:
                return violation(Rule.SKIPPED, name=requests[request].name, reason=reason, due=due)
        if rows == [*decision.shares]:
            return None
        for request in rows:
            if request in decision.waits:
                return violation(Rule.SCHEDULED, name=requests[request].name, due=decision.waits[request])
        return violation(Rule.ROWS, rows=rows, due=[*decision.shares])

    def _row(self, row: ScheduledRow, truth: Truth, share: Share) -> Violation | None:
        num_steps = self._num_steps.get(row.request, 0)
        if (row.epoch, row.step_in_epoch) != (truth.epoch, num_steps):
            if row.epoch != truth.epoch:
                return violation(Rule.EPOCH, epoch=row.epoch, due=truth.epoch)
            return violation(Rule.STEP_IN_EPOCH, step=row.step_in_epoch, due=num_steps)
        if (row.n, row.d, row.padded) != (share.n, share.d, share.is_padded):
            return self._share(row, share)
        if row.spoils is UNSPOILED and row.request not in self._obligations.spoils:
            return None
        return self._spoils(row, share)

    @staticmethod
    def _share(row: ScheduledRow, share: Share) -> Violation:
        """Return the rule that a row's number of tokens, drafts or padding drafts violates."""
        if row.n != share.n:
            return violation(Rule.NUM_TOKENS, count=row.n, due=share.n, budget=share.budget)
        if row.d != share.d:
            return violation(Rule.NUM_DRAFTS, count=row.d, due=share.d)
        return violation(Rule.PADDED if row.padded else Rule.NOT_PADDED)

    def _spoils(self, row: ScheduledRow, share: Share) -> Violation | None:
        """Check which pending corruption events a row applies to its logits and drafts."""
        waiting = self._obligations.spoils.pop(row.request, UNSPOILED)
        due, left = (UNSPOILED, waiting) if share.is_chunk else (waiting, UNSPOILED)
        if not share.d:
            due, left = due._replace(draft=None), left._replace(draft=waiting.draft)
        if left != UNSPOILED:
            self._obligations.spoils[row.request] = left
        seen = row.spoils
        if seen.no_valid_token != due.no_valid_token:
            return violation(Rule.SAMPLE_LEFT if due.no_valid_token else Rule.SAMPLE_TAKEN)
        if seen.nan_logits != due.nan_logits:
            return violation(Rule.SPOILED_LOGITS, seen=seen.nan_logits, due=due.nan_logits)
        return None if seen == due else violation(Rule.SPOILS, seen=_spoiled(seen), due=_spoiled(due))

    def _memory(self, row: ScheduledRow, truth: Truth, share: Share) -> Violation | None:
        spec, given = self._spec, row.blocks
        if given is not NO_BLOCKS or share.num_blocks or share.shared:
            if len(given.new) != share.num_blocks:
                return violation(Rule.NUM_BLOCKS, count=len(given.new), due=share.num_blocks)
            if given.hit_length != len(share.shared) * spec.block_size or given.shared != share.shared:
                return violation(Rule.HITS, blocks=given.shared, tokens=given.hit_length, due=share.shared)
            if self._oracle.cache is not None and given.new != share.blocks:
                return violation(Rule.BLOCKS, blocks=given.new, due=share.blocks)
            for block in given.new if self._oracle.cache is None else ():
                if not 0 <= block < spec.num_blocks or self._owner[block] is not None:
                    return violation(Rule.BLOCK_OWNED, block=block, owner=self._owner_name(block))
                self._owner[block] = row.request
        slot = row.state_slot
        if truth.running:
            return None if slot == truth.state_slot else violation(Rule.SLOT_CHANGED, slot=slot)
        if not 0 <= slot < spec.max_num_seqs or self._slot_owner[slot] is not None:
            return violation(Rule.SLOT_OWNED, slot=slot)
        self._slot_owner[slot] = row.request
        return None

    def _owner_name(self, block: int) -> str | None:
        owner = self._owner[block] if 0 <= block < len(self._owner) else None
        return None if owner is None else self._oracle.requests[owner].name

    def _preempt(self, entry: Preempted, truth: Truth) -> Violation | None:
        running = self._oracle.running
        if entry.cause != "blocks":
            wrong = self._obligations.check_entry(entry)
            if wrong is not None:
                return wrong
        else:
            due = victim_of(self._spec, [*map(self._state_of, running)]).request if running else None
            if due != entry.request:
                return violation(Rule.VICTIM, request=entry.request, due=due)
            if entry.mode != "deliver":
                return violation(Rule.VICTIM_MODE, request=entry.request, mode=entry.mode)
            if entry.tick != self._next_tick():
                return violation(Rule.VICTIM_TICK, request=entry.request, tick=entry.tick, due=self._next_tick())
            # Events before this step come before the step's own preemptions.
            wrong = self._obligations.advance_to(entry.tick, "before_schedule")
            if wrong is not None:
                return wrong
            if not self._victims:
                self._running_before = [*map(self._state_of, running)]
                self._cache_before = self._oracle.cache.copy() if self._oracle.cache is not None else None
            self._victims.append(truth.index)
            self._returned.append(entry.returned)
        self._drafts_next[truth.index] = self._num_steps[truth.index] = 0
        self._queue.appendleft(truth.index)
        return None

    def _free(self, entry: Freed) -> Violation | None:
        for block in entry.blocks if self._oracle.cache is None else ():
            if not 0 <= block < self._spec.num_blocks or self._owner[block] != entry.request:
                return violation(Rule.BLOCK_FREED, block=block, request=entry.request, owner=self._owner_name(block))
            self._owner[block] = None
        slot = entry.state_slot
        if not 0 <= slot < self._spec.max_num_seqs or self._slot_owner[slot] != entry.request:
            return violation(Rule.SLOT_FREED, slot=slot, request=entry.request)
        self._slot_owner[slot] = None
        return None

    def _launch(self, entry: Launched) -> Violation | None:
        scheduled, obligations = self._scheduled, self._obligations
        if entry.step != self._launched + 1:
            return violation(Rule.LAUNCH_ORDER, step=entry.step, before=self._launched)
        if scheduled is None or scheduled.step != entry.step:
            return violation(Rule.NOT_THE_LAST_SCHEDULED, step=entry.step)
        self._launched = entry.step
        self._uncorrected.append(entry.step)
        if len(self._uncorrected) > 2:
            return violation(Rule.LAUNCHED_UNCORRECTED, step=entry.step, uncorrected=self._uncorrected[0])
        if len(self._unprocessed) > self._spec.depth:
            return violation(Rule.TOO_MANY_IN_FLIGHT, count=len(self._unprocessed), depth=self._spec.depth)
        order = self._row_order.update(scheduled.rows, scheduled.tick, obligations.reorder)
        if entry.order != order:
            return violation(Rule.ROW_ORDER, step=entry.step, requests=entry.order, due=order)
        is_dummy = not order and obligations.is_dummy_due
        if order:
            obligations.reorder = None
        if is_dummy:
            obligations.is_dummy_due = False
        return self._shape(entry, scheduled, is_dummy)

    def _shape(self, entry: Launched, scheduled: Scheduled, is_dummy: bool) -> Violation | None:
        spec, rows = self._spec, scheduled.rows
        k = spec.num_speculative_tokens
        is_uniform = {(row.n, row.d) for row in rows} == {(1 + k, k)}
        if entry.uniform != is_uniform:
            return violation(Rule.UNIFORM, seen=entry.uniform, due=is_uniform)
        num_rows, num_tokens = len(rows), sum([row.n for row in rows])
        if spec.pad and rows:
            num_rows = 1 << (num_rows - 1).bit_length()
            num_tokens = (
                num_rows * (1 + k) if is_uniform else -(-num_tokens // spec.token_multiple) * spec.token_multiple
            )
        if is_dummy:
            num_rows, num_tokens = 1, spec.token_multiple
        if (entry.num_rows, entry.num_tokens) != (num_rows, num_tokens):
            seen = {"rows": entry.num_rows, "tokens": entry.num_tokens}
            return violation(Rule.SHAPE, **seen, due_rows=num_rows, due_tokens=num_tokens)
        return None

    def _process(self, step: int) -> Violation | None:
        if not self._unprocessed or self._unprocessed[0].step != step:
            due = self._unprocessed[0].step if self._unprocessed else None
            return violation(Rule.PROCESS_ORDER, step=step, due=due)
        if len(self._unprocessed) < self._spec.depth:
            return violation(Rule.PROCESSED_EARLY, step=step, count=len(self._unprocessed), depth=self._spec.depth)
        tick = self._unprocessed[-1].tick
        self._unprocessed.popleft()
        return self._obligations.advance_to(tick, "before_process")

    def _correct(self, step: int) -> Violation | None:
        if not self._uncorrected or self._uncorrected.popleft() != step or step >= self._launched:
            return violation(Rule.CORRECTED_OUT_OF_TURN, step=step)
        return None


def _spoiled(spoils: Spoils) -> tuple[str | None, str | None]:
    """Return the events that corrupt a row's logit and its draft token, as JSON."""
    logit, draft = (event.model_dump_json() if event is not None else None for event in (spoils.logit, spoils.draft))
    return logit, draft

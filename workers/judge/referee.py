"""Referee of the decisions in a log: the oracle follows them, the referee asks whether they were allowed.

Verifies: that every event is heard at its place and nothing happens without one; every step as `reference_scheduler`
decides it: who runs and in which order, tokens, drafts, blocks, the reason of everyone else, and who is preempted; who
owns blocks and state slots; the order and padded shape of batches; the order of launches, corrections and results. With
a prefix cache, which blocks are taken over and which are handed out.
Does not verify: values (`checker` does); which state slot is handed out and, without a prefix cache, which free block.
"""

from collections import deque

from scenarios.trace import Trace
from workers.judge.event_obligations import Duties
from workers.judge.reference_scheduler import Decision, RowOrder, Share, Standing, victim_of
from workers.oracle.prefix_cache import CachedBlocks
from workers.oracle.state_oracle import Oracle
from workers.oracle.truth import Truth
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
    Submitted,
)

# A tick no trace reaches: events are bounded by 1,000,000.
_AFTER_EVERY_EVENT = 1 << 30


class Referee:
    """Judge each entry before the oracle takes it, with what the oracle knows so far."""

    def __init__(self, trace: Trace, oracle: Oracle) -> None:
        spec = self._spec = trace.spec
        self._oracle = oracle
        self._duties = Duties(trace, oracle)
        self._row_order = RowOrder(trace.seed)
        self._has_grammars = any(submit.params.grammar for submit in trace.submits())
        self._owner: list[int | None] = [None] * spec.num_blocks
        self._slot_owner: list[int | None] = [None] * spec.max_num_seqs
        self._queue: deque[int] = deque()
        self._drafts_next: dict[int, int] = {}
        self._num_steps: dict[int, int] = {}
        self._victims: list[int] = []
        self._returned: list[tuple[int, ...]] = []
        # Who ran before the victims of a step were preempted.
        self._running_before: list[Standing] = []
        # The prefix cache as it was before the victims of a step gave their blocks back.
        self._cache_before: CachedBlocks | None = None
        self._scheduled: Scheduled | None = None
        self._launched = -1
        self._unprocessed: deque[Scheduled] = deque()
        self._uncorrected: deque[int] = deque()

    def judge(self, entry: Entry) -> str | None:
        """Return what is wrong with an entry, or None."""
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
                return self._duties.happened(entry)
            case Submitted(request=request):
                self._queue.append(request)
                return self._duties.happened(entry)
            case Preempted(request=request) | Aborted(request=request) | Freed(request=request):
                if not 0 <= request < len(self._oracle.requests):
                    return f"request {request} was never submitted"
                return self._happen(entry, self._oracle.requests[request])

    def at_end(self) -> str | None:
        """Return what is missing once the engine says that nothing is left to do, or None."""
        wrong = self._duties.come_due(_AFTER_EVERY_EVENT, "before_process")
        if wrong is not None:
            return wrong
        if len(self._uncorrected) > 1:
            return f"step {self._uncorrected[0]} was never corrected"
        alive = [truth.name for truth in self._oracle.alive.values()]
        return f"the engine stopped while requests {', '.join(alive)} were alive" if alive else None

    def waiting(self) -> str:
        """Say why each request that was left out of the last step was."""
        skipped = self._scheduled.skipped if self._scheduled is not None else ()
        names = [f"{self._oracle.requests[request].name} waits: {reason}" for request, reason in skipped]
        return ", ".join(names) or "no request waits"

    def _out_of_place(self, entry: Entry) -> str | None:
        """Say what an entry comes before: nothing happens while a step is decided, nor until it is launched."""
        scheduled = self._scheduled
        if scheduled is not None and scheduled.step > self._launched and not isinstance(entry, Launched):
            return f"step {scheduled.step} is not launched yet"
        if not self._victims or isinstance(entry, Scheduled | Freed):
            return None
        if isinstance(entry, Preempted) and entry.cause == "blocks":
            return None
        return f"requests were preempted for step {self._launched + 1}, which is not scheduled yet"

    def _happen(self, entry: Preempted | Aborted | Freed, truth: Truth) -> str | None:
        match entry:
            case Preempted():
                return self._preempt(entry, truth)
            case Aborted():
                return self._duties.happened(entry)
            case Freed():
                return self._free(entry)

    def _next_tick(self) -> int:
        return 0 if self._scheduled is None else self._scheduled.tick + 1

    def _schedule(self, entry: Scheduled) -> str | None:
        oracle = self._oracle
        if not entry.tick == entry.step == self._next_tick():
            return f"it is step {entry.step} at tick {entry.tick}, next is {self._next_tick()}"
        self._scheduled = entry
        wrong = self._duties.come_due(entry.tick, "before_schedule")
        if wrong is not None:
            return wrong
        if entry.k_step != self._duties.k_step:
            return f"{entry.k_step} drafts are proposed, the events say {self._duties.k_step}"
        rows = [row.request for row in entry.rows]
        named = sorted(rows + [request for request, _ in entry.skipped])
        alive = [*oracle.alive]
        if named != alive:
            return f"scheduled or skipped are requests {named}, alive are {alive}"
        decision = self._decide(entry)
        wrong = self._compare(entry, rows, decision)
        if wrong is not None:
            return wrong
        for row in entry.rows:
            truth, share = oracle.requests[row.request], decision.shares[row.request]
            wrong = self._row(row, truth, share) or self._memory(row, truth, share)
            if wrong is not None:
                return f"request {truth.name}: {wrong}"
            self._drafts_next[row.request] = 0 if share.is_chunk else entry.k_step
            self._num_steps[row.request] = row.step_in_epoch + 1
        if self._queue:
            self._queue = deque([request for request in self._queue if request not in decision.shares])
        self._victims, self._returned, self._cache_before = [], [], None
        self._unprocessed.append(entry)
        return None

    def _decide(self, entry: Scheduled) -> Decision:
        """Decide the step again; the engine's rows are not looked at."""
        requests = self._oracle.requests
        stale: set[int] = set()
        if self._queue:
            self._queue = deque([request for request in self._queue if requests[request].finish_reason is None])
            # Of the others that wait nothing is in flight.
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
        decision = Decision(self._spec, entry.k_step, self._duties.stalled(entry.tick), stale, grammars, cache)
        decision.go_on(
            self._running_before if self._victims else [self._standing(truth) for truth in self._oracle.running]
        )
        if self._spec.policy == "priority":
            self._queue = deque(sorted(self._queue, key=lambda request: (requests[request].priority, request)))
        decision.admit(self._queue, lambda request: self._standing(requests[request]))
        return decision

    def _standing(self, truth: Truth) -> Standing:
        standing = Standing(
            truth.index,
            truth.committed,
            truth.sched_computed,
            truth.sched_placeholders,
            self._drafts_next.get(truth.index, 0),
            len(truth.blocks),
            truth.limit,
        )
        if self._spec.policy == "priority":
            standing.priority = truth.priority
        if self._oracle.cache is not None:
            standing.blocks = tuple(truth.blocks)
            standing.hashes = tuple(truth.hashes_until(truth.committed - 1, self._spec.block_size))
            standing.num_cached = truth.num_cached
        return standing

    def _compare(self, entry: Scheduled, rows: list[int], decision: Decision) -> str | None:
        """Compare who runs, as the requests of `rows`, who waits and who was preempted with what is due."""
        requests = self._oracle.requests
        victims = self._victims
        if victims != decision.victims:
            return f"preempted for want of blocks are requests {victims}, due are {decision.victims}"
        for victim, blocks, share in zip(victims, self._returned, decision.returned, strict=True):
            count = share.num_blocks if share is not None else 0
            if len(blocks) != count or (
                share is not None and self._oracle.cache is not None and blocks != share.blocks
            ):
                return f"request {requests[victim].name} gives blocks {blocks} of this step back, {count} are due"
        for request, reason in entry.skipped:
            due = decision.waits.get(request)
            if reason != due:
                why = "which is not so" if due is None else f"the reason is {due!r}"
                return f"request {requests[request].name} was left out for {reason!r}, {why}"
        if rows == [*decision.shares]:
            return None
        for request in rows:
            if request in decision.waits:
                return f"request {requests[request].name} was scheduled, it has to wait: {decision.waits[request]!r}"
        return f"rows are {rows}, due are {[*decision.shares]}"

    def _row(self, row: ScheduledRow, truth: Truth, share: Share) -> str | None:
        num_steps = self._num_steps.get(row.request, 0)
        if (row.epoch, row.step_in_epoch) != (truth.epoch, num_steps):
            if row.epoch != truth.epoch:
                return f"epoch is {row.epoch}, it was preempted {truth.epoch} times"
            return f"it is its step {row.step_in_epoch}, it was scheduled {num_steps} times in this epoch"
        if (row.n, row.d, row.padded) != (share.n, share.d, share.is_padded):
            return self._share(row, share)
        if row.spoils is UNSPOILED and row.request not in self._duties.spoils:
            return None
        return self._spoils(row, share)

    @staticmethod
    def _share(row: ScheduledRow, share: Share) -> str:
        """Say in what a row is not the share that is due."""
        if row.n != share.n:
            return f"{row.n} tokens are scheduled, {share.n} are due (budget left {share.budget})"
        if row.d != share.d:
            return f"{row.d} drafts are scheduled, {share.d} are due"
        if row.padded:
            return "it was padded with drafts, but does not join a uniform batch"
        return "it joins a uniform batch, but was not padded with drafts"

    def _spoils(self, row: ScheduledRow, share: Share) -> str | None:
        """Compare what is spoiled of a row: its sample and logits where it samples, a draft where it verifies one."""
        waiting = self._duties.spoils.pop(row.request, UNSPOILED)
        due, left = (UNSPOILED, waiting) if share.is_chunk else (waiting, UNSPOILED)
        if not share.d:
            due, left = due._replace(draft=None), left._replace(draft=waiting.draft)
        if left != UNSPOILED:
            self._duties.spoils[row.request] = left
        if row.spoils.no_valid_token != due.no_valid_token:
            if due.no_valid_token:
                return "its sample was not taken away, an event asks for that"
            return "its sample was taken away, but no event asks for that"
        if row.spoils.nan_logits != due.nan_logits:
            return f"its logits are made NaN: {row.spoils.nan_logits}; due is {due.nan_logits}"
        return None if row.spoils == due else f"spoiled of it are {row.spoils[2:]}; due are {due[2:]}"

    def _memory(self, row: ScheduledRow, truth: Truth, share: Share) -> str | None:
        spec, given = self._spec, row.blocks
        if given is not NO_BLOCKS or share.num_blocks or share.shared:
            if len(given.new) != share.num_blocks:
                wanted = f"{share.num_blocks} cover its tokens and the drafts that follow"
                return f"{len(given.new)} blocks were given, {wanted}"
            if given.hit_length != len(share.shared) * spec.block_size or given.shared != share.shared:
                return f"blocks {given.shared} are taken over ({given.hit_length} tokens), due are {share.shared}"
            if self._oracle.cache is not None and given.new != share.blocks:
                return f"blocks {given.new} are given, due are {share.blocks}"
            for block in given.new if self._oracle.cache is None else ():
                if not 0 <= block < spec.num_blocks or self._owner[block] is not None:
                    return f"block {block} is given to it, but belongs to {self._owner_name(block)}"
                self._owner[block] = row.request
        slot = row.state_slot
        if truth.running:
            return None if slot == truth.state_slot else f"state slot {slot} is given to it, but it has its own"
        if not 0 <= slot < spec.max_num_seqs or self._slot_owner[slot] is not None:
            return f"state slot {slot} is given to it, but it is not free"
        self._slot_owner[slot] = row.request
        return None

    def _owner_name(self, block: int) -> str:
        owner = self._owner[block] if 0 <= block < len(self._owner) else None
        return "nobody: there is no such block" if owner is None else self._oracle.requests[owner].name

    def _preempt(self, entry: Preempted, truth: Truth) -> str | None:
        running = self._oracle.running
        if entry.cause != "blocks":
            wrong = self._duties.happened(entry)
            if wrong is not None:
                return wrong
        else:
            due = victim_of(self._spec, [*map(self._standing, running)]).request if running else None
            if due != entry.request:
                which = "the one admitted last" if self._spec.policy == "fcfs" else "the least urgent"
                return f"request {entry.request} was preempted, but it is not {which}"
            if entry.mode != "deliver":
                return f"request {entry.request} was preempted for blocks in mode {entry.mode}, due is deliver"
            if entry.tick != self._next_tick():
                return f"request {entry.request} was preempted at tick {entry.tick}, next is {self._next_tick()}"
            # What an event before this step asks for comes before what the step needs.
            wrong = self._duties.come_due(entry.tick, "before_schedule")
            if wrong is not None:
                return wrong
            if not self._victims:
                self._running_before = [*map(self._standing, running)]
                self._cache_before = self._oracle.cache.copy() if self._oracle.cache is not None else None
            self._victims.append(truth.index)
            self._returned.append(entry.returned)
        self._drafts_next[truth.index] = self._num_steps[truth.index] = 0
        self._queue.appendleft(truth.index)
        return None

    def _free(self, entry: Freed) -> str | None:
        for block in entry.blocks if self._oracle.cache is None else ():
            if not 0 <= block < self._spec.num_blocks or self._owner[block] != entry.request:
                owner = self._owner_name(block)
                return f"block {block} is given back by request {entry.request}, but belongs to {owner}"
            self._owner[block] = None
        slot = entry.state_slot
        if not 0 <= slot < self._spec.max_num_seqs or self._slot_owner[slot] != entry.request:
            return f"state slot {slot} is given back by request {entry.request}, which does not own it"
        self._slot_owner[slot] = None
        return None

    def _launch(self, entry: Launched) -> str | None:
        scheduled, duties = self._scheduled, self._duties
        if entry.step != self._launched + 1:
            return f"step {entry.step} was launched after step {self._launched}"
        if scheduled is None or scheduled.step != entry.step:
            return f"step {entry.step} was launched, but not the last one scheduled"
        self._launched = entry.step
        self._uncorrected.append(entry.step)
        if len(self._uncorrected) > 2:
            return f"step {entry.step} was launched, but step {self._uncorrected[0]} was not corrected"
        if len(self._unprocessed) > self._spec.depth:
            return f"{len(self._unprocessed)} steps are in flight, depth is {self._spec.depth}"
        order = self._row_order.update(scheduled.rows, scheduled.tick, duties.reorder)
        if entry.order != order:
            return f"step {entry.step} runs requests {entry.order}, due in row order are {order}"
        is_dummy = not order and duties.is_dummy_due
        if order:
            duties.reorder = None
        if is_dummy:
            duties.is_dummy_due = False
        return self._shape(entry, scheduled, is_dummy)

    def _shape(self, entry: Launched, scheduled: Scheduled, is_dummy: bool) -> str | None:
        spec, rows = self._spec, scheduled.rows
        k = spec.num_speculative_tokens
        is_uniform = {(row.n, row.d) for row in rows} == {(1 + k, k)}
        if entry.uniform != is_uniform:
            return f"the batch is called uniform: {entry.uniform}; due is {is_uniform}"
        num_rows, num_tokens = len(rows), sum([row.n for row in rows])
        if spec.pad and rows:
            num_rows = 1 << (num_rows - 1).bit_length()
            num_tokens = (
                num_rows * (1 + k) if is_uniform else -(-num_tokens // spec.token_multiple) * spec.token_multiple
            )
        if is_dummy:
            num_rows, num_tokens = 1, spec.token_multiple
        if (entry.num_rows, entry.num_tokens) != (num_rows, num_tokens):
            due = f"{num_rows} and {num_tokens}"
            return f"the batch is padded to {entry.num_rows} rows and {entry.num_tokens} tokens, due are {due}"
        return None

    def _process(self, step: int) -> str | None:
        if not self._unprocessed or self._unprocessed[0].step != step:
            expected = self._unprocessed[0].step if self._unprocessed else "none"
            return f"step {step} was processed, next is {expected}"
        if len(self._unprocessed) < self._spec.depth:
            return f"step {step} was processed with {len(self._unprocessed)} in flight, depth is {self._spec.depth}"
        tick = self._unprocessed[-1].tick
        self._unprocessed.popleft()
        return self._duties.come_due(tick, "before_process")

    def _correct(self, step: int) -> str | None:
        if not self._uncorrected or self._uncorrected.popleft() != step or step >= self._launched:
            return f"step {step} was corrected out of turn"
        return None

"""Scheduler: plan each step before the results of the steps in flight are known."""

from collections import deque
from collections.abc import Callable, Sequence

from scenarios.events import PreemptMode
from scenarios.spec import EngineSpec
from workers.engine.block_pool import Pool
from workers.engine.functions import EngineFunctions
from workers.engine.observer import EngineObserver
from workers.engine.prefixes import Prefixes
from workers.engine.request import Plan, PlanRow, PlanWorkspace, Request, log_entry
from workers.record.log import (
    NO_BLOCKS,
    UNSPOILED,
    CacheReset,
    Cause,
    Entry,
    Freed,
    Preempted,
    RowBlocks,
    ScheduledRow,
    SkipReason,
)
from workers.record.observation import Observation


class Scheduler:
    """Request queues, block pool and token budget of an engine; logs its decisions."""

    def __init__(
        self, spec: EngineSpec, functions: EngineFunctions, log: list[Entry | Observation], observer: EngineObserver
    ) -> None:
        self.spec = spec
        self.cache = Prefixes(spec, functions, observer) if spec.prefix_cache else None
        self.blocks = self.cache.pool if self.cache is not None else Pool(spec.num_blocks)
        self._poisoned: list[int] = []
        self.state_slots = Pool(spec.max_num_seqs)
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self._workspace = PlanWorkspace()
        # The running requests at the start of a step; some of them may be preempted for others.
        self._turns: list[Request] = []
        self.k_step = spec.num_speculative_tokens
        self.tick = 0
        self.on_release: Callable[[Request], None] = lambda request: None
        self._choose_victim = functions.choose_victim if spec.policy == "fcfs" else functions.choose_victim_by_priority
        self._functions = functions
        self._log = log
        self._observer = observer

    def has_requests(self) -> bool:
        """Return whether any request is still alive."""
        return bool(self.running or self.waiting)

    def add(self, request: Request) -> None:
        """Add a request to the waiting queue, by arrival or by priority."""
        assert request not in self.waiting, f"request {request.name} is already waiting"
        assert not request.running, f"request {request.name} is already running"
        self.waiting.append(request)
        self._sort_waiting()

    def _sort_waiting(self) -> None:
        if self.spec.policy == "priority":
            assert not any(request.running for request in self.waiting), "a running request is in the waiting queue"
            self.waiting = deque(sorted(self.waiting, key=lambda request: (request.priority, request.index)))

    def schedule(self, step: int) -> Plan:
        """Plan a step: running requests first, then waiting ones unless it preempted any."""
        work = self._workspace
        work.begin(self.spec.max_num_batched_tokens)
        self._turns[:] = self.running
        for request in self._turns:
            if request.running:
                self._schedule_running(request, work)
        if self.cache is not None:
            self.cache.begin_step()
            for row in work.rows:
                self.cache.register(row.request, row.request.tokens, row.num_computed + row.scheduled.n)
        if self.waiting:
            self._admit(work)
        plan = Plan(step, self.k_step, tuple(work.rows), tuple(self._poisoned), work.is_spoiled)
        if plan.rows:
            self._poisoned.clear()
        explained, alive = len(plan.rows) + len(work.skipped), len(self.running) + len(self.waiting)
        assert explained == alive, (
            f"step {step}: {explained} requests have a row or a reason to wait, {alive} are alive"
        )
        self._log.append(log_entry(plan, self.tick, work.skipped))
        for row in plan.rows:
            self._advance(row, step)
        return plan

    def _schedule_running(self, request: Request, work: PlanWorkspace) -> None:
        assert request.state_slot >= 0, f"request {request.name} is running without a state slot"
        reason = self._reason_to_skip(request)
        if reason is None and work.budget == 0:
            reason = "budget"
        if reason is not None:
            self._observer.request_skipped(request, reason)
            work.skipped.append((request.index, reason))
            return
        wanted = len(request.tokens) + request.num_drafts_next + request.num_placeholders - request.num_computed
        n = self._clip(request, wanted, work.budget)
        blocks = self._allocate(request, n)
        while blocks is None:
            victim = self._choose_victim(self.running)
            self.preempt(victim, "blocks", returned=self._take_out(victim, work))
            work.preempted = True
            if victim is request:
                return
            blocks = self._allocate(request, n)
        self._take(request, n, blocks, work)

    def _take_out(self, victim: Request, work: PlanWorkspace) -> tuple[int, ...]:
        """Remove a preempted request's row from the step being planned; return the row's new blocks."""
        returned: tuple[int, ...] = ()
        work.skipped[:] = [skipped for skipped in work.skipped if skipped[0] != victim.index]
        for row in [row for row in work.rows if row.request is victim]:
            work.rows.remove(row)
            scheduled = row.scheduled
            work.budget += self._functions.budget_used(scheduled.n, scheduled.d)
            work.returned += scheduled.n
            work.return_spoils(victim, scheduled.spoils)
            assert not returned, f"request {victim.name} has two rows in a step"
            returned, kept = scheduled.blocks.new, len(victim.blocks) - len(scheduled.blocks.new)
            assert tuple(victim.blocks[kept:]) == returned, (
                f"blocks {victim.blocks} do not end with the row's {returned}"
            )
            del victim.blocks[kept:]
            self.blocks.release(returned)
            self._observer.row_withdrawn()
        return returned

    def _reason_to_skip(self, request: Request) -> SkipReason | None:
        if request.stalled_until > self.tick:
            return "stalled"
        if request.has_params and self._functions.waits_for_tokens(request):
            return "grammar"
        if self.is_near_limit(request):
            return "limit"
        if request.num_computed >= self.spec.max_model_len:
            return "model_length"
        return None

    @staticmethod
    def is_near_limit(request: Request) -> bool:
        """Return whether a request reaches its length limit even if no draft in flight is accepted."""
        ahead = request.num_placeholders
        return ahead > 0 and request.num_computed + 2 - ahead >= request.length_limit

    def _clip(self, request: Request, wanted: int, budget: int) -> int:
        threshold = self.spec.long_prefill_token_threshold
        is_prefill = request.num_computed < len(request.tokens) - 1
        if threshold and is_prefill:
            wanted = min(wanted, threshold)
        if is_prefill and self.spec.is_aligned:
            clipped = self._functions.clip_to_block(request, wanted, self.spec.block_size)
            if clipped < wanted:
                self._observer.chunk_clipped()
            wanted = clipped
        n = min(self._functions.room_for(request, wanted, self.spec.max_model_len), budget)
        assert n > 0, f"request {request.name}: nothing to schedule"
        return n

    def _admit(self, work: PlanWorkspace) -> None:
        kept: deque[Request] = deque()
        alive = len(self.waiting) + len(self.running)
        while self.waiting:
            request = self.waiting.popleft()
            reason = self._try_admit(request, work)
            if reason is not None:
                self._observer.request_skipped(request, reason)
                kept.append(request)
                work.skipped.append((request.index, reason))
            if reason in ("budget", "blocks", "rows"):
                work.skipped.extend((behind.index, reason) for behind in self.waiting)
                kept.extend(self.waiting)
                self.waiting.clear()
        self.waiting = kept
        left = len(self.waiting) + len(self.running)
        assert left == alive, f"{alive} requests were alive, {left} are waiting or running"

    def _try_admit(self, request: Request, work: PlanWorkspace) -> SkipReason | None:
        assert request.finish_reason is None, (
            f"request {request.name} has ended ({request.finish_reason}) but is waiting"
        )
        assert not request.blocks, f"request {request.name} is waiting but holds blocks {request.blocks}"
        if work.preempted:
            return "preempted"
        if request.stalled_until > self.tick:
            return "stalled"
        if request.num_stale:
            return "stale"
        if len(self.running) >= self.spec.max_num_seqs:
            return "rows"
        shared = self.cache.hits(request) if self.cache is not None else []
        request.num_computed = len(shared) * self.spec.block_size
        request.num_accepted_last = 0
        reason = self._fit(request, shared, work)
        if reason is not None:
            request.num_computed = request.num_drafts_next = 0
        return reason

    def _fit(self, request: Request, shared: list[int], work: PlanWorkspace) -> SkipReason | None:
        """Admit a request with `shared` cached blocks; return the reason if it does not fit."""
        wanted = len(request.tokens) - request.num_computed
        padded = self._is_padded_decode(request, wanted, work)
        if padded:
            request.num_drafts_next = self.spec.num_speculative_tokens
            wanted += request.num_drafts_next
        if work.budget == 0 or (padded and work.budget < wanted):
            return "budget"
        n = self._clip(request, wanted, work.budget)
        blocks = self._allocate(request, n, shared)
        if blocks is None:
            return "blocks"
        assert request.state_slot < 0, (
            f"request {request.name} is admitted but already has state slot {request.state_slot}"
        )
        request.state_slot = self._functions.take_state_slot(request, self.state_slots)
        request.running = True
        self.running.append(request)
        self._observer.admitted(request, self.waiting)
        self._take(request, n, blocks, work, padded, shared)
        if self.cache is not None:
            self.cache.joined(request, shared, work.rows)
        return None

    def reset_cache(self, running: bool) -> None:
        """Reset the prefix cache; with `running`, first preempt all, dropping results in flight.

        The request admitted last is preempted first.
        """
        preempts = running and bool(self.running)
        while running and self.running:
            self.preempt(self.running[-1], "reset", "drop")
        self._log.append(CacheReset(self.tick))
        if self.cache is not None:
            lost = self.cache.reset(preempts)
            held = [block for block in lost if self.cache.pool.references[block]]
            assert not held, f"blocks {held} lose their contents while a request holds them"
            self._poisoned = self._functions.blocks_still_lost(self._poisoned, lost)

    def _is_padded_decode(self, request: Request, wanted: int, work: PlanWorkspace) -> bool:
        spec = self.spec
        return (
            spec.pad
            and wanted == 1
            and self.k_step == spec.num_speculative_tokens > 0
            and bool(work.rows)
            and not work.has_prefill
            and request.num_computed + 1 + spec.num_speculative_tokens <= spec.max_model_len
        )

    def _allocate(self, request: Request, n: int, shared: Sequence[int] = ()) -> tuple[int, ...] | None:
        """Allocate a request's blocks for `n` more tokens and the drafts after them.

        None if there are too few.
        """
        held = len(request.blocks) + len(shared)
        count = self._functions.blocks_to_cover(request, n, self.spec) - held
        if count <= 0:
            return ()
        if not self._functions.has_state(request, self.state_slots):
            return None
        return self.blocks.take(count) if self.cache is None else self.cache.take(shared, count)

    def _take(
        self,
        request: Request,
        n: int,
        blocks: tuple[int, ...],
        work: PlanWorkspace,
        padded: bool = False,
        shared: Sequence[int] = (),
    ) -> None:
        computed, num_no_spec = request.num_computed, len(request.tokens) + request.num_placeholders
        request.blocks.extend(shared)
        request.blocks.extend(blocks)
        # Number of tokens after the last token that is known or in flight; negative for a prefill chunk that is not the
        # last.
        num_after_last = n + computed - num_no_spec
        discard = num_after_last < 0
        d = 0 if discard else num_after_last
        assert d <= request.num_drafts_next, (
            f"request {request.name}: {d} draft tokens scheduled, {request.num_drafts_next} exist"
        )
        is_spoiled = request.spoils_next is not UNSPOILED and not discard
        spoils = work.take_spoils(request, d > 0) if is_spoiled else UNSPOILED
        drafts = tuple(self._functions.checked_drafts(request, d)) if request.params.grammar and not discard else ()
        given = RowBlocks(blocks, tuple(shared), len(shared) * self.spec.block_size) if blocks or shared else NO_BLOCKS
        epoch, step, slot = request.epoch, request.step_in_epoch, request.state_slot
        scheduled = ScheduledRow(request.index, epoch, step, n, d, slot, given, padded=padded, spoils=spoils)
        row = PlanRow(request, scheduled, computed, num_no_spec, request.num_accepted_last, discard, drafts)
        work.rows.append(row)
        if work.returned and n > work.budget - work.returned:
            self._observer.budget_returned()
        work.budget -= self._functions.budget_used(n, d)
        work.has_prefill |= n > 1 + d or discard
        self._observer.row_planned(row)

    def _advance(self, row: PlanRow, step: int) -> None:
        request = row.request
        assert row.scheduled.epoch == request.epoch, f"request {request.name} was preempted after its row was planned"
        assert request.last_step < step, f"request {request.name} is scheduled twice in step {step}"
        request.num_computed += row.scheduled.n
        request.num_in_flight += row.scheduled.n
        request.step_in_epoch += 1
        request.last_step = step
        request.num_drafts_next = self._functions.drafts_after(row, self.k_step)
        request.num_placeholders += self._functions.placeholders_for(row)
        if row.discard:
            request.num_accepted_last = 1

    def preempt(
        self, request: Request, cause: Cause, mode: PreemptMode = "deliver", returned: tuple[int, ...] = ()
    ) -> None:
        """Preempt a running request: free its blocks, and queue it before all waiting ones.

        Its results in flight will still be delivered or, in drop mode, discarded; they change no count.
        """
        assert request.running, f"request {request.name} is not running"
        self.running.remove(request)
        request.running = False
        request.epoch += 1
        request.step_in_epoch = 0
        self._functions.reset_counts(request, mode)
        request.drafts = []
        if mode == "drop":
            request.drop_before, request.num_dropped = request.epoch, request.num_in_flight
        request.num_stale = request.num_in_flight - request.num_dropped
        self._log.append(Preempted(request.index, request.epoch, cause, self.tick, mode, returned))
        self._release(request)
        self.waiting.appendleft(request)
        self._sort_waiting()
        self._observer.preempted(request, cause)

    def finish(self, request: Request, reason: str) -> None:
        """End a request: remove it from its queue; free its blocks and state slot."""
        assert request.finish_reason is None, f"request {request.name} ended twice"
        request.finish_reason = reason
        request.drafts = []
        if request.running:
            self.running.remove(request)
            request.running = False
            self._release(request)
        else:
            self.waiting.remove(request)

    def _release(self, request: Request) -> None:
        assert not request.running, f"request {request.name} releases its blocks while running"
        self._log.append(Freed(request.index, tuple(request.blocks), request.state_slot))
        self.on_release(request)
        self.blocks.release(self._functions.blocks_to_free(request, self.spec.block_size))
        self.state_slots.release([request.state_slot])
        request.blocks = []
        request.state_slot = -1

    def process(self, row: PlanRow, sampled: Sequence[int]) -> tuple[int, ...]:
        """Append a row's sampled tokens to its request; return those accepted.

        Results of an earlier epoch may be appended too, but they change no counts, because these were reset.
        """
        request = row.request
        stale = row.scheduled.epoch != request.epoch
        request.num_in_flight -= row.scheduled.n
        assert request.num_in_flight >= 0, f"request {request.name}: {request.num_in_flight} tokens in flight"
        if stale:
            self._drain(request, row, sampled)
        if self._functions.has_ended(request):
            return ()
        if stale:
            sampled = self._functions.deliver_stale(request, row, sampled)
        if not stale and not row.discard:
            request.num_accepted_last = len(sampled)
            self._functions.roll_back(request, row.scheduled.d, len(sampled))
        appended = self._append(request, row, sampled)
        if not stale:
            request.num_placeholders -= len(appended)
            assert request.num_placeholders >= 0, f"request {request.name}: {request.num_placeholders} placeholders"
        return appended

    def _drain(self, request: Request, row: PlanRow, sampled: Sequence[int]) -> None:
        if row.scheduled.epoch < request.drop_before:
            request.num_dropped -= row.scheduled.n
            self._observer.output_dropped(request, sampled)
        else:
            self._functions.subtract_stale(request, row, sampled)
        assert request.num_stale >= 0, f"request {request.name}: {request.num_stale} stale tokens"
        assert request.num_dropped >= 0, f"request {request.name}: {request.num_dropped} tokens to drop"

    def _append(self, request: Request, row: PlanRow, sampled: Sequence[int]) -> tuple[int, ...]:
        self._observer.verified(request, row, sampled)
        count, reason = self._functions.accepted_length(request, sampled)
        scheduled = row.scheduled
        if not (sampled or row.discard or scheduled.spoils.no_valid_token or scheduled.epoch < request.drop_before):
            self._observer.had_no_logit()
            reason = "error"
        assert count <= len(sampled), f"request {request.name} takes {count} of {len(sampled)} tokens"
        taken = tuple(sampled[:count])
        request.tokens.extend(taken)
        if self.cache is not None and request.running and sampled:
            tokens = self._functions.tokens_to_cache(request, sampled[count:])
            self.cache.register(request, tokens, request.num_computed)
        if reason is not None:
            self.finish(request, reason)
            self._observer.ended(request, row, sampled, count)
        return taken

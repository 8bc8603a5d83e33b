"""Check scheduling and outputs by token counts, without redoing the scheduler's decisions.

Verifies:
- a request gets no token beyond its limit or the model's, and does not end with reason "length" before it;
- every token is computed once per epoch, and draft tokens come after the last known token;
- a step stays within the token budget, the number of batch rows and the free blocks;
- no request that could run is skipped or cut short while budget, rows and blocks are left;
- admission is first come, first served, or by priority;
- the scheduler does not stay idle while requests wait.

Does not verify: values; the reason of a waiting request; the choice of a preempted request.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from scenarios.events import Stall, Submit
from scenarios.trace import Trace
from workers.record.evidence import Violation, violation
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
    Submitted,
)
from workers.record.observation import Observation
from workers.record.rules import Rule


@dataclass(slots=True, eq=False)
class Account:
    """Token counts of one request: known, computed, scheduled, in flight.

    - `known`: its tokens so far, at most `limit`; `computed`: those computed in this epoch.
    - `scheduled`: all tokens scheduled in this epoch; a row samples once they reach `needed`, the tokens known when the
      request joined the batch.
    - `samples`: its rows in flight that sample, at most `tokens` tokens together.
    - `stale`: its rows in flight from an earlier epoch whose results will be delivered.
    """

    index: int
    submit: Submit
    known: int
    limit: int
    rank: tuple[int, int]
    epoch: int = 0
    drop_before: int = 0
    computed: int = 0
    scheduled: int = 0
    needed: int = 0
    samples: int = 0
    tokens: int = 0
    stale: int = 0
    running: bool = False
    was_admitted: bool = False
    has_ended: bool = False


class Properties:
    """Judge that checks token counts of log entries and results, without redoing decisions."""

    def __init__(self, trace: Trace) -> None:
        self._spec = trace.spec
        self._submits = trace.submits()
        self._accounts: list[Account] = []
        self._holders = [0] * trace.spec.num_blocks
        self._num_free = trace.spec.num_blocks
        self._num_running = 0
        self._has_victims = False
        self._num_idle_steps = 0
        self._in_flight: deque[tuple[ScheduledRow, ...]] = deque()
        self._processed_rows: Sequence[ScheduledRow] = ()
        # A stall event holds a request back from its own tick or from the next one.
        self._stalls: dict[str, list[tuple[int, int]]] = {}
        for event in trace.events:
            if isinstance(event, Stall):
                self._stalls.setdefault(event.request, []).append((event.tick, event.tick + event.ticks))

    def judge(self, entry: Entry) -> Violation | None:
        """Return the property that a log entry violates, or None."""
        match entry:
            case Scheduled():
                return self._schedule(entry)
            case Processed():
                self._processed_rows = self._in_flight.popleft()
            case Launched() | Corrected():
                pass
            case Submitted(submit=number):
                self._submitted(self._submits[number])
            case Freed():
                self._release(entry.blocks)
            case Preempted():
                self._preempted(self._accounts[entry.request], entry)
            case Aborted():
                self._end(self._accounts[entry.request])
        return None

    def _submitted(self, submit: Submit) -> None:
        assert isinstance(submit.prompt, tuple), "the trace is explicit"
        index, length = len(self._accounts), len(submit.prompt)
        rank = (submit.priority if self._spec.policy == "priority" else 0, index)
        limit = min(length + submit.max_tokens, self._spec.max_model_len)
        self._accounts.append(Account(index, submit, length, limit, rank))

    def _preempted(self, account: Account, entry: Preempted) -> None:
        self._leave(account)
        account.epoch = entry.epoch
        if entry.mode == "drop":
            account.drop_before = entry.epoch
        in_flight = [row for rows in self._in_flight for row in rows if row.request == account.index]
        account.stale = sum(row.epoch >= account.drop_before for row in in_flight)
        account.samples = account.tokens = 0
        self._has_victims |= entry.cause == "blocks"

    def _leave(self, account: Account) -> None:
        self._num_running -= account.running
        account.running = False

    def _end(self, account: Account) -> None:
        self._leave(account)
        account.has_ended = True

    def _release(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            self._holders[block] -= 1
            self._num_free += not self._holders[block]

    def _schedule(self, entry: Scheduled) -> Violation | None:
        accounts, spec = self._accounts, self._spec
        left = spec.max_num_batched_tokens - sum([row.n for row in entry.rows])
        if left < 0:
            return violation(Rule.BUDGET, count=-left)
        if self._has_victims:
            # The budget of a preempted request stays unused: no other request is scheduled instead.
            left = 0
        joined: list[tuple[Account, bool]] = []
        for row in entry.rows:
            account = accounts[row.request]
            if not account.running:
                joined.append((account, account.was_admitted))
                self._join(account, row)
            account.scheduled += row.n
            if account.scheduled >= account.needed:
                account.samples += 1
                account.tokens += 1 + row.d
            elif left and not self._may_end_here(account, row.n):
                return violation(Rule.CUT_SHORT, name=account.submit.request, count=row.n, left=left)
            if row.blocks.new:
                for block in row.blocks.new:
                    if self._holders[block]:
                        return violation(Rule.BLOCK_HELD, block=block, name=account.submit.request)
                    self._holders[block] = 1
                self._num_free -= len(row.blocks.new)
        self._in_flight.append(entry.rows)
        if self._num_running > spec.max_num_seqs:
            return violation(Rule.TOO_MANY_RUN, count=self._num_running, due=spec.max_num_seqs)
        wrong = self._left_out(entry, left, joined) if entry.skipped else None
        self._has_victims = False
        return wrong

    def _join(self, account: Account, row: ScheduledRow) -> None:
        account.running = account.was_admitted = True
        self._num_running += 1
        account.computed = account.scheduled = row.blocks.hit_length
        account.needed = account.known
        for block in row.blocks.shared:
            self._num_free -= not self._holders[block]
            self._holders[block] += 1

    def _may_end_here(self, account: Account, n: int) -> bool:
        """Return whether a prefill chunk may end after `n` tokens with token budget left."""
        spec = self._spec
        is_aligned = spec.recurrent_cache == "align" and account.scheduled % spec.block_size == 0
        return is_aligned or n == spec.long_prefill_token_threshold

    def _left_out(self, entry: Scheduled, left: int, joined: Sequence[tuple[Account, bool]]) -> Violation | None:
        """Return a violation if a skipped request could have run, or None."""
        waiting: list[Account] = []
        is_held_back = self._has_victims
        for request, _ in entry.skipped:
            account = self._accounts[request]
            if self._stalls and self._may_be_stalled(account, entry.tick):
                # Other requests may wait for its blocks, or for its turn in the queue.
                is_held_back = True
                continue
            if not account.running:
                if not account.stale:
                    waiting.append(account)
            elif left and not self._awaits_results(account):
                return violation(Rule.LEFT_OUT, name=account.submit.request, left=left)
        is_idle = not entry.rows and bool(waiting) and not is_held_back
        self._num_idle_steps = self._num_idle_steps + 1 if is_idle else 0
        if self._num_idle_steps > self._spec.depth + 1:
            return violation(Rule.IDLE, count=self._num_idle_steps)
        for account, has_run in joined:
            for other in waiting:
                # First come, first served: a request that has run before goes before all others.
                if other.rank < account.rank and not (has_run and self._spec.policy == "fcfs"):
                    return violation(Rule.OVERTAKEN, name=account.submit.request, other=other.submit.request)
        if waiting and not is_held_back and left > self._spec.num_speculative_tokens:
            return self._could_be_admitted(waiting, left)
        return None

    def _could_be_admitted(self, waiting: Sequence[Account], left: int) -> Violation | None:
        """Return a violation if rows, blocks and budget suffice for a waiting request, or None."""
        spec = self._spec
        if self._num_running >= spec.max_num_seqs:
            return None
        for account in waiting:
            length = min(account.known + spec.num_speculative_tokens * 2, spec.max_model_len)
            # Any waiting request may be at the head of the queue: a preempted request is put there.
            if self._num_free < -(-length // spec.block_size):
                return None
        name = waiting[0].submit.request
        return violation(Rule.COULD_RUN, name=name, left=left, blocks=self._num_free)

    def _awaits_results(self, account: Account) -> bool:
        """Return whether a running request may have to wait for results in flight."""
        if not account.samples:
            return False
        is_full = account.known + account.tokens >= self._spec.max_model_len
        return is_full or bool(account.submit.params.grammar) or account.known + account.samples >= account.limit

    def _may_be_stalled(self, account: Account, tick: int) -> bool:
        return any(first <= tick <= last for first, last in self._stalls.get(account.submit.request, ()))

    def processed(self, observed: Observation) -> Violation | None:
        """Return the property that a processed step's results violate, or None."""
        values, rows = observed.values, {row.request: row for row in self._processed_rows}
        for request, tokens, reason in zip(observed.requests, values["tokens"], values["finish_reason"], strict=True):
            account, row = self._accounts[request], rows[request]
            if account.has_ended:
                if tokens:
                    return violation(Rule.GOES_ON_ENDED, name=account.submit.request, count=len(tokens))
                continue
            count = self._advance if row.epoch == account.epoch else self._deliver
            wrong = count(account, row, len(tokens), reason) or self._limit(account, len(tokens), reason)
            if wrong is not None:
                return wrong.model_copy(update={"request": account.submit.request})
        return None

    @staticmethod
    def _advance(account: Account, row: ScheduledRow, num_tokens: int, reason: str | None) -> Violation | None:
        """Add a row's computed tokens; return a violation if it sampled at a wrong token."""
        end = account.computed + row.n - row.d
        if account.computed + row.n >= account.needed:
            account.samples -= 1
            account.tokens -= 1 + row.d
            if end != account.known:
                return violation(Rule.COMPUTED_BEFORE_DRAFTS, count=end, due=account.known)
            if num_tokens > 1 + row.d:
                return violation(Rule.TOO_MANY_TOKENS, count=num_tokens, drafts=row.d)
            if not num_tokens and reason is None and not (row.spoils.no_valid_token or row.spoils.nan_logits):
                return violation(Rule.NO_TOKEN)
            account.computed = end - 1 + num_tokens
            return None
        if row.d or num_tokens or end >= account.known:
            return violation(Rule.CHUNK, end=end, known=account.known, drafts=row.d, count=num_tokens)
        account.computed = end
        return None

    @staticmethod
    def _deliver(account: Account, row: ScheduledRow, num_tokens: int, reason: str | None) -> Violation | None:
        if row.epoch >= account.drop_before:
            account.stale -= 1
        elif num_tokens:
            return violation(Rule.DROPPED_DELIVERED, count=num_tokens, epoch=row.epoch)
        return None

    def _limit(self, account: Account, num_tokens: int, reason: str | None) -> Violation | None:
        known = account.known = account.known + num_tokens
        limit = account.limit
        if known > limit:
            return violation(Rule.BEYOND_LIMIT, count=known, due=limit)
        if reason is not None:
            self._end(account)
            if reason == "length" and known < limit:
                return violation(Rule.ENDS_BELOW_LIMIT, count=known, due=limit)
        elif known == limit:
            return violation(Rule.GOES_ON_AT_LIMIT, count=known)
        return None

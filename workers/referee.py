"""Judge the log itself: the oracle follows the engine's decisions, the referee asks whether they were allowed.

Verifies: the token budget, who runs and in which order, how many tokens and drafts each row gets, block coverage and
ownership, the reason of every request left out, preemption and its victim, the order of launches, corrections and
results, and that nothing happens to a request without an event that asks for it.
Does not verify: values (`compare` does); which free block is handed out.
"""

from collections import deque
from collections.abc import Iterator

from scenarios.events import Abort, AnyEvent, NoValidToken, Preempt, SetK, Stall
from scenarios.trace import Trace
from workers.log import (
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
from workers.oracle import Oracle, Truth


class Referee:
    """Judge each entry before the oracle takes it, with what the oracle knows so far."""

    def __init__(self, trace: Trace, oracle: Oracle) -> None:
        spec = self._spec = trace.spec
        self._trace = trace
        self._oracle = oracle
        self._owner: list[int | None] = [None] * spec.num_blocks
        self._slot_owner: list[int | None] = [None] * spec.max_num_seqs
        self._num_free = spec.num_blocks
        self._drafts_next: dict[int, int] = {}
        self._unprocessed: deque[Scheduled] = deque()
        self._uncorrected: deque[int] = deque()
        self._launched = -1
        self._victims: list[tuple[int, int, int]] = []
        self._skipped: tuple[tuple[int, str], ...] = ()

    def judge(self, entry: Entry) -> str | None:
        """Return what is wrong with an entry, or None."""
        match entry:
            case Scheduled():
                return self._scheduled(entry)
            case Launched():
                return self._launch(entry)
            case Processed(step=step):
                return self._processed(step)
            case Corrected(step=step):
                return self._corrected(step)
            case Preempted():
                return self._preempt(entry)
            case Aborted(request=request, tick=tick):
                return self._asked_for(request, tick, Abort)
            case Freed():
                return self._freed(entry)
            case Submitted():
                return None

    def waiting(self) -> str:
        """Say why each request that was left out of the last step was."""
        names = [f"{self._oracle.requests[request].name} waits: {reason}" for request, reason in self._skipped]
        return ", ".join(names) or "no request waits"

    def _scheduled(self, entry: Scheduled) -> str | None:
        oracle, spec = self._oracle, self._spec
        self._skipped = entry.skipped
        if entry.k_step != self._k_at(entry.tick):
            return f"{entry.k_step} drafts are proposed, the events say {self._k_at(entry.tick)}"
        named = [row.request for row in entry.rows] + [request for request, _ in entry.skipped]
        alive = [truth.index for truth in oracle.requests if truth.finish_reason is None]
        left_out = set(alive) - set(named)
        if len(set(named)) != len(named) or left_out or set(named) - set(alive):
            return f"scheduled or skipped are requests {sorted(named)}, alive are {alive}"
        running = [truth.index for truth in oracle.running]
        rows = [row.request for row in entry.rows]
        if rows[: len(running)] != [index for index in running if index in rows]:
            continuing = [index for index in rows if index in running]
            if continuing != [index for index in running if index in rows] or rows[: len(continuing)] != continuing:
                return f"rows are {rows}, running in order are {running}"
        wrong = self._preemptions(entry)
        if wrong is not None:
            return wrong
        budget = spec.max_num_batched_tokens
        for row in entry.rows:
            wrong = self._row(row, oracle.requests[row.request], entry, budget)
            if wrong is not None:
                return f"request {oracle.requests[row.request].name}: {wrong}"
            budget -= row.n
        if len(oracle.running) + sum(not oracle.requests[index].running for index in rows) > spec.max_num_seqs:
            return f"more than max_num_seqs = {spec.max_num_seqs} requests run"
        for request, reason in entry.skipped:
            if not self._is_reason(oracle.requests[request], reason, entry, budget):
                return f"request {oracle.requests[request].name} was left out for {reason!r}, which is not so"
        for row in entry.rows:
            chunk = self._is_chunk(row, oracle.requests[row.request])
            self._drafts_next[row.request] = 0 if chunk else entry.k_step
        self._victims = []
        self._unprocessed.append(entry)
        return None

    @staticmethod
    def _is_chunk(row: ScheduledRow, truth: Truth) -> bool:
        return truth.sched_computed + row.n < truth.committed + truth.sched_placeholders

    def _row(self, row: ScheduledRow, truth: Truth, entry: Scheduled, budget: int) -> str | None:
        spec = self._spec
        if row.epoch != truth.epoch:
            return f"epoch is {row.epoch}, it was preempted {truth.epoch} times"
        drafts = self._drafts_next.get(row.request, 0)
        if row.padded:
            fresh = not truth.running and truth.committed - truth.sched_computed == 1
            if not (spec.pad and fresh and entry.k_step == spec.num_speculative_tokens):
                return "it was padded with drafts, but does not join a uniform batch"
            drafts = spec.num_speculative_tokens
        ahead = truth.committed + truth.sched_placeholders - truth.sched_computed
        wanted = ahead + drafts
        threshold = spec.long_prefill_token_threshold
        if threshold and truth.sched_computed < truth.committed - 1:
            wanted = min(wanted, threshold)
        n = min(wanted, budget, spec.max_model_len - truth.sched_computed)
        if row.n != n or n < 1:
            return f"{row.n} tokens are scheduled, {n} are due (budget left {budget})"
        if row.d != max(0, n - ahead):
            return f"{row.d} drafts are scheduled, {max(0, n - ahead)} are due"
        if row.invalid and not self._takes_sample(row.request, entry.tick):
            return "its sample was taken away, but no event asks for that"
        return self._memory(row, truth)

    def _memory(self, row: ScheduledRow, truth: Truth) -> str | None:
        spec = self._spec
        length = min(truth.sched_computed + row.n + spec.num_speculative_tokens, spec.max_model_len)
        due = max(0, -(-length // spec.block_size) - len(truth.blocks))
        if len(row.new_blocks) != due:
            return f"{len(row.new_blocks)} blocks were given, {due} cover its tokens and the drafts that follow"
        for block in row.new_blocks:
            if not 0 <= block < spec.num_blocks or self._owner[block] is not None:
                return f"block {block} is given to it, but belongs to {self._owner_name(block)}"
            self._owner[block] = row.request
        self._num_free -= due
        slot = row.state_slot
        if not 0 <= slot < spec.max_num_seqs or self._slot_owner[slot] not in (None, row.request):
            return f"state slot {slot} is given to it, but it is not free"
        self._slot_owner[slot] = row.request
        return None

    def _owner_name(self, block: int) -> str:
        owner = self._owner[block] if 0 <= block < len(self._owner) else None
        return "nobody: there is no such block" if owner is None else self._oracle.requests[owner].name

    def _is_reason(self, truth: Truth, reason: str, entry: Scheduled, budget: int) -> bool:
        spec, ahead = self._spec, truth.sched_placeholders
        match reason:
            case "stalled":
                return self._is_stalled(truth.name, entry.tick)
            case "limit":
                return ahead > 0 and truth.sched_computed + 2 - ahead >= truth.limit
            case "model_length":
                return truth.sched_computed >= spec.max_model_len
            case "budget":
                return budget == 0 or (spec.pad and not truth.running and budget < 1 + spec.num_speculative_tokens)
            case "rows":
                started = sum(not self._oracle.requests[row.request].running for row in entry.rows)
                return len(self._oracle.running) + started >= spec.max_num_seqs and not truth.running
            case "stale":
                return any(
                    row.request == truth.index and row.epoch != truth.epoch
                    for scheduled in self._unprocessed
                    for row in scheduled.rows
                )
            case "blocks":
                return not truth.running and self._num_free < self._blocks_due(self._head(entry), budget)
            case _:
                return bool(self._victims) and not truth.running

    def _head(self, entry: Scheduled) -> Truth:
        """Return the first request left out for want of blocks; those behind it wait for the same reason."""
        first = next(request for request, reason in entry.skipped if reason == "blocks")
        return self._oracle.requests[first]

    def _blocks_due(self, truth: Truth, budget: int) -> int:
        """Return the most blocks an admission could have asked for."""
        spec = self._spec
        n = min(truth.committed + spec.num_speculative_tokens, max(budget, 1), spec.max_model_len)
        length = min(n + spec.num_speculative_tokens, spec.max_model_len)
        return -(-length // spec.block_size)

    def _preempt(self, entry: Preempted) -> str | None:
        oracle = self._oracle
        if entry.cause == "event":
            wrong = self._asked_for(entry.request, entry.tick, Preempt)
            if wrong is not None:
                return wrong
        else:
            if not oracle.running or oracle.running[-1].index != entry.request:
                return f"request {entry.request} was preempted, but it is not the one admitted last"
            victim = oracle.requests[entry.request]
            self._victims.append((entry.request, len(victim.blocks), self._needs(victim)))
        self._drafts_next[entry.request] = 0
        return None

    def _preemptions(self, entry: Scheduled) -> str | None:
        """Replay the allocations of a step: each preemption must come from one that fails without it."""
        victims = list(self._victims)
        free = self._num_free - sum(blocks for _, blocks, _ in victims)
        for row in entry.rows:
            while victims and len(row.new_blocks) > free:
                free += victims.pop(0)[1]
            free -= len(row.new_blocks)
        if not victims:
            return None
        request, _, needs = victims[-1]
        before = free + sum(blocks for _, blocks, _ in victims[:-1])
        if needs > before:
            return None
        name = self._oracle.requests[request].name
        return f"request {name} was preempted, but {before} free blocks cover the {needs} it may need"

    def _needs(self, truth: Truth) -> int:
        """Return the most blocks a running request could ask for in this step."""
        spec = self._spec
        ahead = truth.committed + truth.sched_placeholders - truth.sched_computed
        n = min(ahead + spec.num_speculative_tokens, spec.max_num_batched_tokens)
        length = min(truth.sched_computed + n + spec.num_speculative_tokens, spec.max_model_len)
        return -(-length // spec.block_size) - len(truth.blocks)

    def _launch(self, entry: Launched) -> str | None:
        spec = self._spec
        if entry.step != self._launched + 1:
            return f"step {entry.step} was launched after step {self._launched}"
        self._launched = entry.step
        self._uncorrected.append(entry.step)
        if len(self._unprocessed) > spec.depth:
            return f"{len(self._unprocessed)} steps are in flight, depth is {spec.depth}"
        total = sum(row.n for row in self._unprocessed[-1].rows)
        rows = len(entry.order)
        if not spec.pad or not rows:
            shape = (rows, total)
        elif entry.uniform:
            shape = (1 << (rows - 1).bit_length(), (1 << (rows - 1).bit_length()) * (1 + spec.num_speculative_tokens))
        else:
            shape = (1 << (rows - 1).bit_length(), -(-total // spec.token_multiple) * spec.token_multiple)
        if (entry.num_rows, entry.num_tokens) != shape:
            return f"the batch is padded to {entry.num_rows} rows and {entry.num_tokens} tokens, due are {shape}"
        return None

    def _processed(self, step: int) -> str | None:
        if not self._unprocessed or self._unprocessed[0].step != step:
            expected = self._unprocessed[0].step if self._unprocessed else "none"
            return f"step {step} was processed, next is {expected}"
        self._unprocessed.popleft()
        return None

    def _corrected(self, step: int) -> str | None:
        if not self._uncorrected or self._uncorrected.popleft() != step or step >= self._launched:
            return f"step {step} was corrected out of turn"
        return None

    def _freed(self, entry: Freed) -> str | None:
        for block in entry.blocks:
            if self._owner[block] != entry.request:
                owner = self._owner_name(block)
                return f"block {block} is given back by request {entry.request}, but belongs to {owner}"
            self._owner[block] = None
        self._num_free += len(entry.blocks)
        if self._slot_owner[entry.state_slot] != entry.request:
            return f"state slot {entry.state_slot} is given back by request {entry.request}, which does not own it"
        self._slot_owner[entry.state_slot] = None
        return None

    def _events(self, kind: type, request: str) -> Iterator[AnyEvent]:
        events = (event for event in self._trace.events if isinstance(event, kind))
        return (event for event in events if getattr(event, "request", "") == request)

    def _asked_for(self, request: int, tick: int, kind: type) -> str | None:
        name = self._oracle.requests[request].name
        if any(event.tick == tick for event in self._events(kind, name)):
            return None
        return f"{kind.__name__.lower()} of request {name} at tick {tick}, but no event asks for it"

    def _takes_sample(self, request: int, tick: int) -> bool:
        name = self._oracle.requests[request].name
        return any(event.tick <= tick for event in self._events(NoValidToken, name))

    def _is_stalled(self, name: str, tick: int) -> bool:
        for event in self._events(Stall, name):
            assert isinstance(event, Stall)
            first = event.tick + (event.at != "before_schedule")
            if event.tick <= tick < first + event.ticks:
                return True
        return False

    def _k_at(self, tick: int) -> int:
        places = {"before_schedule": 0, "after_launch": 1, "before_process": 2}
        changes = [
            (event.tick, places[event.at], index, event.k)
            for index, event in enumerate(self._trace.events)
            if isinstance(event, SetK) and (event.tick, places[event.at]) <= (tick, 0)
        ]
        return max(changes)[3] if changes else self._spec.num_speculative_tokens

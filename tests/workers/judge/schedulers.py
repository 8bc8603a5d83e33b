"""Schedulers with one bug each."""

from collections import deque
from collections.abc import Sequence
from typing import Any

from scenarios.events import PreemptMode
from workers.engine.request import PlanRow, Request
from workers.engine.scheduler import Scheduler
from workers.record.log import Cause, SkipReason


class LeavesOutTooEarly(Scheduler):
    """Stops scheduling a request one token before its length limit."""

    def _reason_to_skip(self, request: Request) -> SkipReason | None:
        ahead = request.num_placeholders
        if ahead and request.num_computed + 3 - ahead >= request.length_limit:
            return "limit"
        return super()._reason_to_skip(request)


class KeepsBlocksBack(Scheduler):
    """Fails an allocation that would leave fewer than two blocks."""

    def _allocate(self, request: Request, n: int, shared: Sequence[int] = ()) -> tuple[int, ...] | None:
        blocks = super()._allocate(request, n, shared)
        if blocks and self.blocks.num_free < 2:
            self.blocks.release(blocks)
            return None
        return blocks


class AdmitsWhileStale(Scheduler):
    """Admits a preempted request before its results in flight are delivered."""

    def _try_admit(self, request: Request, draft: Any) -> SkipReason | None:
        stale, request.num_stale = request.num_stale, 0
        reason = super()._try_admit(request, draft)
        request.num_stale = stale
        return reason


class IgnoresChunks(Scheduler):
    """Schedules a whole prompt at once, without prefill chunks."""

    def _clip(self, request: Request, wanted: int, budget: int) -> int:
        return min(wanted, budget, self.spec.max_model_len - request.num_computed)


class ForgetsDrafts(Scheduler):
    """Drops draft tokens after a step with a discarded prefill chunk."""

    def _advance(self, row: PlanRow, step: int) -> None:
        super()._advance(row, step)
        if row.discard:
            for request in self.running:
                request.num_drafts_next = 0


class LastComeFirst(Scheduler):
    """Admits the newest request first."""

    def add(self, request: Request) -> None:
        self.waiting.appendleft(request)


class AdmitsBesideAPreemption(Scheduler):
    """Admits requests in a step that preempted another one."""

    def _try_admit(self, request: Request, draft: Any) -> SkipReason | None:
        preempted, draft.preempted = draft.preempted, False
        reason = super()._try_admit(request, draft)
        draft.preempted = preempted
        return reason


class NeverPads(Scheduler):
    """Admits a request with one token into a uniform batch without padding drafts."""

    def _is_padded_decode(self, request: Request, wanted: int, draft: Any) -> bool:
        return False


class QueuesVictimsLast(Scheduler):
    """Puts a preempted request at the end of the waiting queue."""

    def preempt(
        self, request: Request, cause: Cause, mode: PreemptMode = "deliver", returned: tuple[int, ...] = ()
    ) -> None:
        super().preempt(request, cause, mode, returned)
        self.waiting.rotate(-1)


class AdmitsPastTheHead(Scheduler):
    """Admits requests past the head of the queue, which waits for blocks or budget."""

    def _admit(self, draft: Any) -> None:
        kept: deque[Request] = deque()
        for request in self.waiting:
            reason = self._try_admit(request, draft)
            if reason is not None:
                kept.append(request)
                draft.skipped.append((request.index, reason))
        self.waiting = kept


class IgnoresStalls(Scheduler):
    """Schedules running requests that an event holds back."""

    def _reason_to_skip(self, request: Request) -> SkipReason | None:
        request.stalled_until = 0
        return super()._reason_to_skip(request)


SCHEDULERS = (
    LeavesOutTooEarly,
    KeepsBlocksBack,
    AdmitsWhileStale,
    IgnoresChunks,
    ForgetsDrafts,
    LastComeFirst,
    AdmitsBesideAPreemption,
    NeverPads,
    QueuesVictimsLast,
    AdmitsPastTheHead,
    IgnoresStalls,
)

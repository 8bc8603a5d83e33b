"""Check that a waiting request is admitted once there is room for it, and in the order of priorities.

Verifies:
- the request that is next to be admitted waits for at most `PLANS_MAX` consecutive plans that leave room for it: a
  batch row, tokens, and blocks for it and all running requests at their full lengths;
- with policy `priority`, no request is admitted while one of a better priority waits.

Does not verify:
- waiting requests in a pool that may become too small: schedulers estimate that differently;
- requests that wait for a load, a grammar or their next input, and plans in a pause;
- traces with a KV connector or with sessions, whose requests also wait for transfers and inputs.
"""

from collections.abc import Iterator, Sequence

from scenarios.events import Submit
from scenarios.spec import ENGINE, EngineSpec
from workers.judge.history import History
from workers.judge.judge import Case, End, HistoryJudge
from workers.judge.mismatches import mismatch
from workers.oracle.derived import length_limit
from workers.record.engine_records import OpenedValues, Waiting, WaitingValues
from workers.record.evidence import Difference, fact

PLANE = "liveness"
# An engine may leave a plan's room unused: a preemption in it, results in flight, or the padding of a batch.
PLANS_MAX = 4


class Admissions(HistoryJudge):
    """Judge of the requests that a scheduler lets wait."""

    def __init__(self, spec: EngineSpec) -> None:
        self._spec = spec

    @classmethod
    def of(cls, case: Case) -> "Admissions | None":
        """Return the judge; None with a KV connector or sessions."""
        has_sessions = any(submit.session is not None for submit in case.trace.submits())
        return (
            cls(case.trace.spec)
            if case.shows_plans and not has_sessions and not case.trace.spec.has_connector
            else None
        )

    def compared(self, history: History) -> tuple[str, ...]:
        return (PLANE,) if any(isinstance(seen, Waiting) for seen in history.records) else ()

    def differences(self, end: End) -> Iterator[Difference]:
        own = end.history.engines.get(ENGINE)
        if own is None:
            return
        first, count = -1, 0
        for seen in end.history.records:
            if not isinstance(seen, Waiting) or seen.of != ENGINE:
                continue
            if self._spec.policy == "priority":
                yield from _overtaken(seen, end.submits)
            has_room = self._has_room(seen.values, seen.requests[0], own.sizes, end.submits)
            goes_on = has_room and seen.requests[0] == first and first not in seen.values.admitted
            first, count = seen.requests[0], count + 1 if goes_on else int(has_room)
            if count > PLANS_MAX:
                expected = fact("admitted_within", plans=PLANS_MAX)
                left = seen.values
                actual = fact("waits_beside_room", plans=count, rows=left.rows_left, blocks=left.blocks_left)
                yield mismatch(PLANE, "waiting", first, (seen.step, None), expected, actual)

    def _has_room(self, left: WaitingValues, first: int, sizes: OpenedValues, submits: Sequence[Submit]) -> bool:
        """Return whether a plan left a batch row, tokens and blocks for one more request."""
        needed = self._num_blocks(submits[first], left, sizes) + sum(
            max(0, self._num_blocks(submits[request], left, sizes) - held) for request, held in left.running
        )
        # A prefill chunk may be cut at a block boundary.
        largest = max(sizes.block_size, *sizes.state_sizes, *(size for size, _ in sizes.windows), 0)
        num_tokens = 1 + self._spec.num_speculative_tokens + largest
        return left.rows_left > 0 and left.tokens_left >= num_tokens and left.blocks_left >= needed

    def _num_blocks(self, submit: Submit, left: WaitingValues, sizes: OpenedValues) -> int:
        """Return the largest number of blocks that a request may hold, in all KV-cache groups."""
        assert isinstance(submit.prompt, tuple), "the trace is explicit"
        drafts = self._spec.num_speculative_tokens
        length = length_limit(self._spec, len(submit.prompt), submit.max_tokens) + 1 + drafts
        of_tokens = [sizes.block_size, *(size for size, _ in sizes.windows)]
        # A group with recurrent states also holds one for each draft token.
        of_states = sum(-(-length // size) + 2 + drafts for size in sizes.state_sizes)
        return sum(-(-length // size) for size in of_tokens) + of_states + left.blocks_reserved


def _overtaken(seen: Waiting, submits: Sequence[Submit]) -> Iterator[Difference]:
    """Yield a difference for each request admitted before a waiting one with a lower (better) priority number."""
    best = min(seen.requests, key=lambda request: submits[request].priority)
    for request in seen.values.admitted:
        if submits[best].priority < submits[request].priority:
            expected = fact("admitted_first", request=f"submit {best}", priority=submits[best].priority)
            actual = fact("of_priority", priority=submits[request].priority)
            yield mismatch(PLANE, "admitted", request, (seen.step, None), expected, actual)
